"""Which local cache a table uses: what the caller says, else the environment."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from strandline.catalog.local_cache import LocalCache

VARIABLE: Final = "STRANDLINE_CACHE"
_ON: Final = frozenset({"1", "on", "true", "yes"})
_OFF: Final = frozenset({"", "0", "off", "false", "no"})
_OPEN: Final[dict[tuple[str, int], LocalCache]] = {}
"""One for each folder: its connection serves all tables of the process."""


def open_cache(given: object, *, is_local: bool) -> LocalCache | None:
    """The cache that `cache=` stands for; None: no cache.

    True is the user's own cache folder, a path is that folder, and a dict gives `dir` and `bytes`.
    None leaves it to the environment, which does not speak of tables on a local disk: those are
    as near as the cache.
    """
    if given is None:
        given = False if is_local else _from_environment(os.environ.get(VARIABLE, ""))
    if given is False:
        return None
    options: Mapping[Any, Any] = given if isinstance(given, Mapping) else {"dir": given}
    unknown = set(options) - {"dir", "bytes"}
    if unknown:
        raise InvalidInput(f"cache: a dict has dir and bytes, not {sorted(map(str, unknown))}")
    return _shared(_folder(options.get("dir", True)), options.get("bytes"))


def _from_environment(text: str) -> bool | str:
    word = text.strip().lower()
    return word in _ON if word in _ON | _OFF else text


def _folder(given: object) -> Path:
    if given is True:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        given = Path(base) / "strandline"
    if not isinstance(given, (str, os.PathLike)) or not os.fspath(given):
        raise InvalidInput(f"cache must be True, False, a folder or a dict, not {given!r}")
    return Path(os.fspath(given)).expanduser().absolute()


def _shared(folder: Path, limit: object) -> LocalCache:
    # SQLite is loaded by those who use it: most processes have no local cache.
    from strandline.catalog.local_cache import (  # noqa: PLC0415
        DEFAULT_BYTES,
        LEAST_BYTES,
        LocalCache,
    )

    size = DEFAULT_BYTES if limit is None else limit
    if type(size) is not int or size < LEAST_BYTES:
        raise InvalidInput(f"cache: bytes must be an integer from {LEAST_BYTES} on, not {size!r}")
    key = (str(folder), size)
    if key not in _OPEN:
        _OPEN[key] = LocalCache(folder, size)
    return _OPEN[key]


@atexit.register
def close_all() -> None:
    """Let go of all caches; the next use opens them again."""
    for cache in _OPEN.values():
        cache.close()
