"""Proof, before the first commit, that a store keeps the one promise a commit needs.

Some stores that speak S3 ignore the condition and answer "created" to everybody: two writers would
both win and one batch would be lost in silence. So two creates of one name are tried first.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from strandline.tableformat.errors import (
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
    UnsupportedStore,
)
from strandline.tableformat.storage import Put

if TYPE_CHECKING:
    from strandline.tableformat.storage import Storage

PROBE_FOLDER = "_strandline/probe"

_ATTEMPTS = 5
_SECOND_CHANCE = 3
_proven: set[tuple[int, str]] = set()


def probe(storage: Storage, folder: str = PROBE_FOLDER) -> None:
    """Refuse a store where two creates of one name both win, or where a list is out of date.

    A vacuum that has just removed the first object makes it look so, too. Hence a store has a
    second chance, and must then prove itself several times.
    """
    try:
        _probe(storage, folder)
    except UnsupportedStore as refused:
        for _ in range(_SECOND_CHANCE):
            try:
                _probe(storage, folder)
            except UnsupportedStore:
                raise refused from None


def _probe(storage: Storage, folder: str) -> None:
    name = secrets.token_hex(16)
    path = f"{folder}/{name}"
    first, second = b"first " + name.encode(), b"second " + name.encode()
    try:
        _create(storage, path, first)
        repeated = _create(storage, path, second)
        if repeated is not Put.EXISTS or _held(storage, path) != first:
            raise UnsupportedStore(
                f"the store of {storage.url} ignores conditional writes: of two creates of one "
                "name both won, so two writers could overwrite each other's commits. No table was "
                "changed. Use a store that honours If-None-Match."
            )
        if name not in storage.list(f"{folder}/"):
            raise UnsupportedStore(
                f"the store of {storage.url} does not list an object right after it was written, "
                "so a writer could not find the newest version. No table was changed."
            )
    finally:
        # A writer may lack the permission to delete; then a few bytes stay behind.
        with suppress(StorageFailed):
            storage.delete([path])
            storage.remove_empty_folders(folder)


def _held(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except ObjectMissing:
        return None


def probe_once_per_process(storage: Storage) -> None:
    """Probe the first time this process writes to a bucket or a disk."""
    key = (os.getpid(), storage.probe_key)
    if key not in _proven:
        probe(storage)
        _proven.add(key)


def _create(storage: Storage, path: str, data: bytes) -> Put:
    """Create until the outcome is definite."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return storage.put_if_absent(path, data)
        except (OutcomeUnclear, StoreBusy):
            continue
    return storage.put_if_absent(path, data)
