"""Tables on Google Cloud Storage, through gcsfs: a commit is an upload with ifGenerationMatch=0.

gcsfs lends its credentials, its connections and its event loop. The few requests are sent here,
because gcsfs repeats a failed one up to six times and forgets the status of most answers.

Tested with the real library against a local stand-in for the service. Not tested is the service
itself: its credentials, its rate limits, and that it honours the condition. The probe
checks the last before a process's first write.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.tableformat.stores.remote import (
    LARGE_OBJECT,
    PARALLEL_READS,
    Call,
    Fault,
    Page,
    RemoteStorage,
    clean_text,
    missing_package,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.tableformat.stores.urls import Place

_OBJECT = "b/{}/o/{}"
_NEVER_SENT = {"DefaultCredentialsError", "RefreshError", "MutualTLSChannelError"}


def open_place(place: Place, options: dict[str, Any]) -> GcsStorage:
    """Open `gs://bucket/prefix`; the options are those of gcsfs."""
    return GcsStorage(place, options)


class GcsStorage(RemoteStorage):
    """A prefix in a bucket."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        super().__init__(place, options)
        self.url = "gs://" + self.url.partition("://")[2]

    def _open_filesystem(self, options: dict[str, Any]) -> Any:
        try:
            gcsfs = import_module("gcsfs")
        except ImportError:
            raise missing_package("gcsfs", "gcs") from None
        return gcsfs.GCSFileSystem(**options)

    async def _get(self, call: Call, key: str, start: int, length: int | None) -> bytes:
        wanted = {} if length is None else {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            return await self._send(call, "GET", _OBJECT, key, headers=wanted, alt="media")
        except _Refused as refused:
            if wanted and refused.status == 416:  # noqa: PLR2004 - past the end
                return b""
            raise

    async def _head(self, call: Call, key: str) -> int:
        return int(json.loads(await self._send(call, "GET", _OBJECT, key, fields="size"))["size"])

    async def _modified(self, call: Call, key: str) -> datetime:
        found = json.loads(await self._send(call, "GET", _OBJECT, key, fields="updated"))
        return datetime.fromisoformat(found["updated"])

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
        reply = json.loads(
            await self._send(
                call,
                "GET",
                "b/{}/o",
                prefix=prefix or None,
                delimiter="/" if flat else None,
                # The offset itself is included, so one more is asked for; the caller drops it.
                startOffset=prefix + after if after else None,
                maxResults=None if limit is None else min(limit + bool(after), 1000),
                pageToken=token,
                fields="items(name,size),nextPageToken",
            )
        )
        entries = [(item["name"], int(item["size"])) for item in reply.get("items", ())]
        return Page(entries, reply.get("nextPageToken"))

    async def _put(self, call: Call, key: str, data: bytes) -> None:
        if len(data) <= LARGE_OBJECT:
            await self._upload(call, key, data)
        else:
            await call.fs._pipe_file(f"{self._bucket}/{key}", data)  # noqa: SLF001 - to await it

    async def _create(self, call: Call, key: str, data: bytes) -> None:
        await self._upload(call, key, data, ifGenerationMatch="0")

    async def _upload(self, call: Call, key: str, data: bytes, **condition: str) -> None:
        url = f"{call.fs._location}/upload/storage/v1/b/{{}}/o"  # noqa: SLF001 - no public name
        kind = {"Content-Type": "application/octet-stream"}
        await self._send(
            call, "POST", url, headers=kind, data=data, uploadType="media", name=key, **condition
        )

    async def _remove(self, call: Call, keys: Sequence[str]) -> None:
        turns = asyncio.Semaphore(PARALLEL_READS)

        async def remove(key: str) -> None:
            async with turns:
                try:
                    await self._send(call, "DELETE", _OBJECT, key)
                except _Refused as refused:
                    if not refused.object_missing:
                        raise

        await asyncio.gather(*map(remove, keys))

    async def _send(
        self,
        call: Call,
        method: str,
        path: str,
        *names: str,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        **parameters: str | int | None,
    ) -> bytes:
        """Send one request, once."""
        fs = call.fs
        await fs._set_session()  # noqa: SLF001 - as gcsfs's own requests are sent
        async with fs.session.request(
            method,
            fs._format_path(path, (self._bucket, *names)),  # noqa: SLF001
            params=fs._get_params(parameters),  # noqa: SLF001
            headers=fs._get_headers(dict(headers or {})),  # noqa: SLF001
            data=data,
            timeout=fs.requests_timeout,
        ) as reply:
            content: bytes = await reply.read()
            date = reply.headers.get("Date")
            if reply.status >= 400:  # noqa: PLR2004 - client and server errors
                raise _Refused(reply.status, content, date)
        call.saw(date)
        return content

    def _fault(self, error: Exception) -> Fault:
        if isinstance(error, _Refused):
            return Fault(
                status=error.status,
                text=clean_text(error),
                date=error.date,
                root_missing=error.status == 404 and not error.object_missing,  # noqa: PLR2004
            )
        # From gcsfs's own upload of a large object, and from the libraries below it.
        status = getattr(error, "code", None)
        return Fault(
            status=status if isinstance(status, int) else None,
            text=clean_text(error),
            never_sent=type(error).__name__ in _NEVER_SENT,
        )


class _Refused(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, content: bytes, date: str | None) -> None:
        self.status, self.date = status, date
        text = content.decode(errors="replace")
        with suppress(ValueError, KeyError, TypeError):
            text = json.loads(text)["error"]["message"]
        super().__init__(text)

    @property
    def object_missing(self) -> bool:
        """Whether the object is absent, and not the bucket."""
        return self.status == 404 and "bucket does not exist" not in str(self)  # noqa: PLR2004
