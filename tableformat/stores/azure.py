"""Tables on Azure Blob Storage, through adlfs: a commit is a Put Blob with `If-None-Match: *`.

adlfs lends its credentials and its open client; the requests are the client's own, each sent once.

Tested with the real library against a local stand-in for the service. Not tested is the service
itself: its credentials, accounts with real folders, and that it honours the condition. The probe
checks the last before a process's first write.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.stores.remote import (
    PARALLEL_READS,
    Call,
    Fault,
    Page,
    RemoteStorage,
    clean_text,
    missing_package,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from strandline.tableformat.stores.urls import Place

_NEVER_SENT = {"ClientAuthenticationError", "CredentialUnavailableError"}
_EXISTS = {"BlobAlreadyExists", "UnauthorizedBlobOverwrite"}
"""The second is said to a token that may create but not overwrite."""


def open_place(place: Place, options: dict[str, Any]) -> AzureStorage:
    """Open `abfs://container/prefix` or `abfs://container@account.dfs.core.windows.net/prefix`."""
    return AzureStorage(place, options)


class AzureStorage(RemoteStorage):
    """A prefix in a container."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        container, _, host = place.bucket.partition("@")
        account, _, service = host.partition(".")
        if not container or (host and not (account and service)):
            raise InvalidInput("write abfs://container@account.dfs.core.windows.net/prefix")
        if host:
            options = {"account_name": account, **options}
        super().__init__(place, options)
        self._bucket = container

    def _open_filesystem(self, options: dict[str, Any]) -> Any:
        try:
            adlfs = import_module("adlfs")
        except ImportError:
            raise missing_package("adlfs", "azure") from None
        return adlfs.AzureBlobFileSystem(**options)

    async def _get(self, call: Call, key: str, start: int, length: int | None) -> bytes:
        wanted = {} if length is None else {"offset": start, "length": length}
        try:
            stream = await self._blob(call, key).download_blob(**wanted, **_once(call))
            data: bytes = await stream.readall()
        except Exception as error:
            if wanted and self._fault(error).status == 416:  # noqa: PLR2004 - past the end
                return b""
            raise
        return data

    async def _head(self, call: Call, key: str) -> int:
        found = await self._blob(call, key).get_blob_properties(**_once(call))
        return int(found.size)

    async def _modified(self, call: Call, key: str) -> datetime:
        found = await self._blob(call, key).get_blob_properties(**_once(call))
        written: datetime = found.last_modified
        return written

    async def _list_page(
        self,
        call: Call,
        prefix: str,
        *,
        flat: bool,
        after: str,
        limit: int | None,
        token: str | None,
    ) -> Page:
        del after  # only the newest services know it; the caller drops what comes before
        container = call.fs.service_client.get_container_client(self._bucket)
        listing = container.walk_blobs if flat else container.list_blobs
        found = listing(
            name_starts_with=prefix, include=["metadata"], results_per_page=limit, **_once(call)
        )
        pages = found.by_page(continuation_token=token)
        entries = [
            (item.name, int(item.size))
            async for item in await anext(pages)
            # Accounts with real folders list them as blobs; deeper names come as bare prefixes.
            if hasattr(item, "size") and (item.metadata or {}).get("hdi_isfolder") != "true"
        ]
        return Page(entries, pages.continuation_token or None)

    async def _put(self, call: Call, key: str, data: bytes) -> None:
        await self._blob(call, key).upload_blob(data, overwrite=True, **_once(call))

    async def _create(self, call: Call, key: str, data: bytes) -> None:
        await self._blob(call, key).upload_blob(data, overwrite=False, **_once(call))

    async def _remove(self, call: Call, keys: Sequence[str]) -> None:
        turns = asyncio.Semaphore(PARALLEL_READS)

        async def remove(key: str) -> None:
            async with turns:
                try:
                    await self._blob(call, key).delete_blob(**_once(call))
                except Exception as error:
                    fault = self._fault(error)
                    if fault.status != 404 or fault.root_missing:  # noqa: PLR2004 - Not Found
                        raise

        await asyncio.gather(*map(remove, keys))

    def _blob(self, call: Call, key: str) -> Any:
        return call.fs.service_client.get_blob_client(self._bucket, key)

    def _says_exists(self, fault: Fault) -> bool:
        return super()._says_exists(fault) or fault.code in _EXISTS

    def _fault(self, error: Exception) -> Fault:
        reply = getattr(error, "response", None)
        headers = getattr(reply, "headers", None) or {}
        code = str(headers.get("x-ms-error-code", ""))
        status = getattr(error, "status_code", None)
        return Fault(
            status=status,
            code=code,
            text=clean_text(error),
            date=headers.get("Date"),
            never_sent=status is None and type(error).__name__ in _NEVER_SENT,
            # aiohttp below the client may send a PUT twice when a kept connection was closed, and
            # tells nobody. So "busy" does not prove that nothing happened.
            retried=status in {429, 503},
            root_missing=code == "ContainerNotFound",
        )


def _once(call: Call) -> dict[str, Any]:
    """Return the options of a request that is sent once and whose reply tells the time."""
    return {
        "retry_total": 0,
        "raw_response_hook": lambda reply: call.saw(reply.http_response.headers.get("Date")),
    }
