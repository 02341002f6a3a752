"""What may name a table and what may name an object in it. Pure; no store is touched."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from strandline.tableformat.errors import CorruptTable, InvalidInput, UnsupportedStore

_BACKENDS = {
    "file": "local",
    "memory": "memory",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "abfs": "azure",
    "abfss": "azure",
    "az": "azure",
}
_SUPPORTED = "a local path, file://, memory://, s3://, gs:// (gcs://) and abfs:// (abfss://, az://)"

_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f\\\ud800-\udfff]"  # control characters, backslash, halves of a character
    r"|://"
    r"|(?:^|/)\.{0,2}(?:/|\Z)"  # an empty component, "." or "..": also a leading or trailing "/"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A checked table root."""

    scheme: str
    backend: str
    """The module in `stores/` that opens it."""

    bucket: str
    """Bucket, container or memory name; empty for a local path."""

    path: str
    """Below the bucket, without slashes at its ends; for a local path, the path as given."""


def parse_url(url: object) -> Place:
    """Take a table URL apart, or refuse it.

    A URL is only repeated in an error once it cannot hold a credential.
    """
    text = _text(url)
    scheme = _scheme(text)
    backend = _BACKENDS[scheme]
    if scheme == "file":
        return Place(scheme, backend, "", _file_path(text))
    bucket, _, path = text.partition("://")[2].partition("/")
    path = path.rstrip("/")
    _refuse_credentials(scheme, bucket, path)
    if not re.fullmatch(r"[\w.@-]+", bucket):
        raise InvalidInput(f"a {scheme}:// URL begins with the name of a bucket, not {bucket!r}")
    if path and _UNSAFE.search(path):
        raise InvalidInput(f"{path!r} is no plain prefix: it has an empty or a relative part")
    return Place(scheme, backend, bucket, path)


def absolute_url(url: object) -> str:
    """The URL as other processes understand it: a relative path means this one's folder."""
    place = parse_url(url)
    if place.backend != "local":
        return _text(url)
    return os.path.abspath(place.path)  # noqa: PTH100 - Path would follow symbolic links


def check_path(path: object) -> str:
    """Return a path that stays inside the table root, or refuse it.

    Never normalised: two spellings of one path would let two names mean one object.
    """
    if not isinstance(path, str) or _UNSAFE.search(path):
        raise CorruptTable(
            f"path {path!r} is not a plain path relative to the table root; nothing was touched"
        )
    return path


def folder_path(prefix: str) -> str:
    """Return a folder without its trailing slash; "" is the table root."""
    return check_path(prefix.removesuffix("/")) if prefix else ""


def _text(url: object) -> str:
    text = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str):
        raise InvalidInput(f"a table URL is a string or a path, not {type(text).__name__}")
    if not text.strip():
        raise InvalidInput("the table URL is empty")
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", text):
        raise InvalidInput("the table URL holds a control character")
    return text


def _scheme(text: str) -> str:
    """Return the scheme of a URL that names a store we can commit to; a bare path is a file."""
    before, slashes, _ = text.partition("://")
    scheme = before.lower()
    if not slashes:
        scheme = text.partition(":")[0].lower()
        if scheme in _BACKENDS and scheme != "file" and ":" in text:
            raise InvalidInput(f"the table URL lacks slashes; write {scheme}://…")
        return "file"
    if scheme not in _BACKENDS:
        named = scheme if re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) else "chained"
        raise UnsupportedStore(
            f"no table can be kept at a {named} URL: a commit needs a store with an atomic "
            f"exclusive create. Supported are {_SUPPORTED}."
        )
    return scheme


def _file_path(text: str) -> str:
    """Return a plain path as it is (no `~`), or the absolute path of a percent-encoded URL."""
    if text[:5].lower() != "file:":
        return text
    path = text[5:]
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        path = slash + rest if host in {"", "localhost"} else ""
    path = unquote(path)
    if not path.startswith("/") or "\0" in path:
        raise InvalidInput("a file URL names an absolute path and no host: file:///absolute/path")
    return path


def _refuse_credentials(scheme: str, bucket: str, path: str) -> None:
    """Refuse a URL that may carry a secret, without repeating it."""
    at_allowed = _BACKENDS[scheme] == "azure"  # container@account
    secret_shaped = ":" in bucket or ("@" in bucket and not at_allowed)
    if secret_shaped or re.search(r"[?#]", bucket + path):
        raise InvalidInput(
            "the table URL holds more than a bucket and a prefix (one of : @ ? #). Credentials and "
            "endpoints belong in storage_options, where they stay out of metadata and logs."
        )
