"""Tables on S3 and on stores that speak its language, through s3fs.

The commit is a PUT with `If-None-Match: *`. Every operation is one request, sent by name, so that
request counts are exact and nothing is answered from a listing cache.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.tableformat.redaction import guard_loggers
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
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from strandline.tableformat.stores.urls import Place

_DELETE_BATCH = 1000
_DENIED_CODES = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
"""Answered with status 400, although the credentials are the trouble."""

_NEVER_SENT = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
    "SSOTokenLoadError",
    "ParamValidationError",
    "InvalidRegionError",
    "NoRegionError",
}


def open_place(place: Place, options: dict[str, Any]) -> S3Storage:
    """Open `s3://bucket/prefix`; the options are those of s3fs."""
    return S3Storage(place, options)


class S3Storage(RemoteStorage):
    """A prefix in a bucket."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        super().__init__(place, options)
        self.url = "s3://" + self.url.partition("://")[2]
        # Directory buckets list in no order and know no StartAfter.
        self._ordered = not place.bucket.endswith("--x-s3")

    def _open_filesystem(self, options: dict[str, Any]) -> Any:
        try:
            s3fs = import_module("s3fs")
        except ImportError:
            raise missing_package("s3fs", "s3") from None
        guard_loggers()
        config = {
            "max_pool_connections": 2 * PARALLEL_READS,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "http_session_cls": _single_attempt_session(),
            **(options.get("config_kwargs") or {}),
        }
        fs = s3fs.S3FileSystem(**{**options, "config_kwargs": config})
        fs.retries = 1
        fs.connect()
        return fs

    async def _get(self, call: Call, key: str, start: int, length: int | None) -> bytes:
        wanted = {} if length is None else {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            reply = await call.fs._call_s3(  # noqa: SLF001 - s3fs's way to await its call_s3
                "get_object", Bucket=self._bucket, Key=key, **wanted
            )
        except Exception as error:
            if wanted and self._fault(error).status == 416:  # noqa: PLR2004 - past the end
                return b""
            raise
        async with reply["Body"] as body:
            data: bytes = await body.read()
        _saw(call, reply)
        if wanted and "ContentRange" not in reply:  # a store that ignores ranges
            return data[start : start + length] if length else b""
        return data

    async def _head(self, call: Call, key: str) -> int:
        reply = await self._send(call, "head_object", Key=key)
        return int(reply["ContentLength"])

    async def _modified(self, call: Call, key: str) -> datetime:
        written: datetime = (await self._send(call, "head_object", Key=key))["LastModified"]
        return written

    def abort_uploads(self, older_than_ms: int) -> int:
        async def ask(call: Call, after: dict[str, str]) -> Any:
            return await self._send(call, "list_multipart_uploads", Prefix=self._prefix, **after)

        async def abort(call: Call, upload: dict[str, Any]) -> None:
            await self._send(
                call, "abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"]
            )

        aborted = 0
        after: dict[str, str] = {}
        while True:
            reply = self._do("list", "uploads", functools.partial(ask, after=after))
            for upload in reply.get("Uploads", ()):
                if upload["Initiated"].timestamp() * 1000 < older_than_ms:
                    self._do("end", "an upload", functools.partial(abort, upload=upload))
                    aborted += 1
            if not reply.get("IsTruncated"):
                return aborted
            after = {
                "KeyMarker": reply["NextKeyMarker"],
                "UploadIdMarker": reply["NextUploadIdMarker"],
            }

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
        wanted: dict[str, Any] = {"Prefix": prefix}
        if flat:
            wanted["Delimiter"] = "/"
        if token:
            wanted["ContinuationToken"] = token
        elif after and self._ordered:
            wanted["StartAfter"] = prefix + after
        if limit is not None and self._ordered:
            wanted["MaxKeys"] = min(limit, 1000)
        reply = await self._send(call, "list_objects_v2", **wanted)
        entries = [(item["Key"], int(item["Size"])) for item in reply.get("Contents", ())]
        more = reply.get("NextContinuationToken") if reply.get("IsTruncated") else None
        return Page(entries, more)

    def _keys(
        self, folder: str, *, flat: bool, after: str, limit: int | None
    ) -> Iterator[tuple[str, int]]:
        keys = super()._keys(folder, flat=flat, after=after, limit=limit)
        return keys if self._ordered else iter(sorted(keys))

    async def _put(self, call: Call, key: str, data: bytes) -> None:
        if len(data) <= LARGE_OBJECT:
            await self._send(call, "put_object", Key=key, Body=data)
        else:
            path = f"{self._bucket}/{key}"
            await call.fs._pipe_file(path, data, chunksize=LARGE_OBJECT // 2)  # noqa: SLF001

    async def _create(self, call: Call, key: str, data: bytes) -> None:
        await self._send(call, "put_object", Key=key, Body=data, IfNoneMatch="*")

    async def _remove(self, call: Call, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            await self._send(call, "delete_object", Key=keys[0])
            return
        for begin in range(0, len(keys), _DELETE_BATCH):
            names = [{"Key": key} for key in keys[begin : begin + _DELETE_BATCH]]
            reply = await self._send(
                call, "delete_objects", Delete={"Objects": names, "Quiet": True}
            )
            for failed in reply.get("Errors", ()):
                if failed.get("Code") != "NoSuchKey":
                    raise _DeleteRefused(failed)

    async def _send(self, call: Call, method: str, **parameters: Any) -> Any:
        reply = await call.fs._call_s3(  # noqa: SLF001 - s3fs's way to await its call_s3
            method, Bucket=self._bucket, **parameters
        )
        _saw(call, reply)
        return reply

    def _fault(self, error: Exception) -> Fault:
        reply = _error_reply(error)
        if reply is None:
            return Fault(
                status=error.status if isinstance(error, _DeleteRefused) else None,
                text=clean_text(error),
                never_sent=type(error).__name__ in _NEVER_SENT,
            )
        meta = reply.get("ResponseMetadata") or {}
        code = str((reply.get("Error") or {}).get("Code", ""))
        status = meta.get("HTTPStatusCode")
        if code in _DENIED_CODES:
            status = 403
        elif code == "RequestTimeout":  # 400: the body did not arrive in time, nothing happened
            status = 503
        return Fault(
            status=status,
            code=code,
            text=clean_text(error),
            date=(meta.get("HTTPHeaders") or {}).get("date"),
            retried=bool(meta.get("RetryAttempts")),
            root_missing=code == "NoSuchBucket",
        )


class _DeleteRefused(Exception):
    """One object of a bulk delete was refused, inside a reply with status 200."""

    def __init__(self, failed: dict[str, Any]) -> None:
        super().__init__(f"{failed.get('Code')}: {failed.get('Message')} ({failed.get('Key')})")
        denied = failed.get("Code") == "AccessDenied"
        self.status = 403 if denied else 500


def _error_reply(error: BaseException) -> dict[str, Any] | None:
    """Return the store's reply from an error or its causes.

    s3fs turns botocore's errors into OSErrors, and makes a FileExistsError of only one shape of
    412, so the kind of exception tells too little.
    """
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        reply = getattr(found, "response", None)
        if isinstance(reply, dict) and "ResponseMetadata" in reply:
            return reply
        found = found.__cause__ or found.__context__
    return None


def _saw(call: Call, reply: Any) -> None:
    call.saw(reply["ResponseMetadata"].get("HTTPHeaders", {}).get("date"))


@functools.cache
def _single_attempt_session() -> type[Any]:
    """Return aiobotocore's HTTP session without aiohttp's silent second attempt.

    When a kept connection turns out closed, aiohttp sends a PUT again and tells nobody. Then a 503
    could follow a create that happened, and we would report that it did not.
    """
    session_class: Any = import_module("aiobotocore.httpsession").AIOHTTPSession

    class SingleAttemptSession(session_class):  # type: ignore[misc]  # untyped
        async def _get_session(self, proxy_url: Any) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False  # noqa: SLF001 - aiohttp offers no public switch
            return session

    return SingleAttemptSession
