"""Removing objects, and making sure that they are gone."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.tableformat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.tableformat.storage import Storage

log: Final = logging.getLogger("strandline.deletions")
"""One line for each object that maintenance removes: who wants a deletion log listens here."""
BATCH: Final = 1_000
_ASKED_ONE_BY_ONE: Final = 16


@dataclass(frozen=True, slots=True)
class Removed:
    """How much went."""

    files: int = 0
    bytes: int = 0


def remove_prefix(storage: Storage, prefix: str, *, dry_run: bool = False) -> Removed:
    """Remove everything below a window's folder; what is still listed afterwards is an error."""
    found = list(storage.walk(f"{prefix}/"))
    if not dry_run:
        remove_paths(storage, [path for path, _ in found], f"{prefix} has expired")
        left = [path for path, _ in storage.walk(f"{prefix}/")]
        if left:
            raise StorageFailed(
                f"{len(left)} objects below {prefix}/ are still there after they were removed, "
                f"such as {left[0]}. Rows stay hidden; run expire again."
            )
        storage.remove_empty_folders(prefix)
    return Removed(len(found), sum(size for _, size in found))


def remove_paths(storage: Storage, paths: Sequence[str], why: str) -> None:
    """Remove objects in batches, each with a line in the deletion log."""
    for batch in _batches(paths):
        for path in batch:
            log.info("remove %s/%s: %s", storage.url, path, why)
        storage.delete(batch)


def remove_verified(storage: Storage, paths: Sequence[str], why: str) -> None:
    """Remove objects one can name, and look whether they are gone."""
    remove_paths(storage, paths, why)
    left = _still_there(storage, paths)
    if left:
        raise StorageFailed(
            f"{len(left)} objects are still there after they were removed, such as {left[0]}. "
            "Nothing that is needed was touched; run it again."
        )


def _still_there(storage: Storage, paths: Sequence[str]) -> list[str]:
    """Those that the store still has: a few are asked for, many are looked up in a list."""
    if len(paths) > _ASKED_ONE_BY_ONE:
        folders = {path[: path.rfind("/") + 1] for path in paths}
        listed = {folder + name for folder in folders for name in storage.list(folder)}
        return [path for path in paths if path in listed]
    dates = storage.written_ms(paths)
    return [path for path, date in zip(paths, dates, strict=True) if date is not None]


def _batches(paths: Sequence[str]) -> Iterator[list[str]]:
    for begin in range(0, len(paths), BATCH):
        yield list(paths[begin : begin + BATCH])
