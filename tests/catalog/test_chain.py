"""Finding the head and keeping up with it, in as few requests as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.api import create_in, open_in
from strandline.catalog.chain import TRUST_MS, Chain
from strandline.tableformat import paths
from strandline.tableformat.errors import CorruptTable, StoreBusy
from strandline.tableformat.lifecycle import Lifecycle
from strandline.tableformat.storage import open_storage
from tests.edited import commit_by_hand
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, Place, Script, events, memory_url, numbers_in

if TYPE_CHECKING:
    from pathlib import Path


def make(appends: int) -> tuple[WatchedStorage, Chain]:
    """A table in memory with some appends, and its chain through a watched door."""
    plain = open_storage(memory_url())
    table = create_in(plain, SCHEMA, time_column="ts")
    for batch in range(appends):
        table.append(events(batch, 1))
    watched = WatchedStorage(plain)
    script = Script()
    watched.clock = lambda: script.now
    return watched, Chain(watched, script.runtime())


def test_the_head_is_found_in_two_requests() -> None:
    """[C2] One listing for one name, one read."""
    watched, chain = make(5)

    assert chain.find_head().manifest.version == 6
    assert watched.names() == ["list", "read"]


def test_a_warm_head_is_confirmed_in_one_request() -> None:
    """[O3] Asking for the next version is enough."""
    watched, chain = make(3)
    head = chain.find_head()
    watched.names()

    assert chain.refresh(head).manifest.version == 4
    assert watched.names() == ["read"]


def test_a_reader_far_behind_lists_instead_of_walking() -> None:
    """Cost does not grow with the number of versions it missed."""
    watched, chain = make(40)
    first = chain.load(1)
    watched.names()

    assert chain.refresh(first).manifest.version == 41
    assert watched.names() == ["read", "read", "read", "list", "read"]


def test_a_local_reader_far_behind_does_not_list(tmp_path: Path) -> None:
    """On a disk a listing costs as much as there are versions; asking by name does not."""
    plain = open_storage(tmp_path / "t")
    table = create_in(plain, SCHEMA, time_column="ts")
    for batch in range(45):
        table.append(events(batch, 1))
    watched = WatchedStorage(plain)
    chain = Chain(watched)
    first = chain.load(1)

    assert chain.refresh(first).manifest.version == 46
    assert "list" not in watched.names()


def test_after_a_long_pause_the_head_is_found_by_listing() -> None:
    """[C8] Versions behind the one we know may have been removed: a gap is not the end."""
    watched, chain = make(5)
    old = chain.load(2)
    watched.inner.delete([paths.manifest_path(v) for v in range(1, 6)])
    now = watched.clock()
    watched.clock = lambda: now + TRUST_MS + 1

    assert chain.refresh(old).manifest.version == 6


def test_names_that_are_no_manifests_are_passed_over() -> None:
    """[M1] Strange files in the folder do not hide the head."""
    watched, chain = make(2)
    for name in ("0", "00000000000000000000.json.lz4.bak", "!", "99999999999999999999.json.lz4"):
        watched.inner.put_if_absent(paths.MANIFESTS + name, b"junk")

    assert chain.find_head().manifest.version == 3


def test_a_busy_store_is_asked_again() -> None:
    """[X5] Reading twice is always safe."""
    watched, chain = make(1)
    errors = iter([StoreBusy("503"), StoreBusy("503"), None, StoreBusy("429")])

    def hook(_name: str, _path: str) -> None:
        error = next(errors, None)
        if error:
            raise error

    watched.before = hook
    assert chain.find_head().manifest.version == 2


def test_another_table_at_the_same_place_is_noticed() -> None:
    """[C2] A live handle does not silently go over to a table that took its place."""
    url = memory_url()
    place = Place(url)
    table = place.create()
    table.append(events(0, 1))
    storage = open_storage(url)
    storage.delete([path for path, _ in storage.walk("")])
    other = place.create()
    for batch in range(3):
        other.append(events(batch, 1))

    with pytest.raises(CorruptTable, match="another table"):
        table.scan()


def test_a_removed_version_cannot_be_opened() -> None:
    """[C2, C8] Below the marker nothing is a version, even if a stalled writer put a file there."""
    storage = open_storage(memory_url())
    table = create_in(storage, SCHEMA, time_column="ts")
    for batch in range(4):
        table.append(events(batch, 1))
    storage.put_if_absent(paths.gc_marker_path(3), b"")

    with pytest.raises(strandline.VersionNotFound):
        open_in(storage, version=2)
    assert numbers_in(open_in(storage, version=3)) == [0, 1]
    assert [r.version for r in table.history()] == [5, 4, 3]
    with pytest.raises(strandline.VersionNotFound):
        open_in(storage, as_of=0)


def test_a_time_is_found_when_giving_up_versions_was_broken_off(tmp_path: Path) -> None:
    """[C2] [TAG-4] Versions below the oldest are given up and have no marker yet."""
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    for batch in range(80):
        table.append(events(batch, 1))
    wanted = table.history()[22]
    commit_by_hand(table, lifecycle=Lifecycle(oldest_version=wanted.version - 5))
    for batch in range(40):
        table.append(events(80 + batch, 1))

    found = strandline.open_table(tmp_path / "t", as_of=wanted.committed_at)

    assert found.version == wanted.version
    with pytest.raises(strandline.VersionNotFound):
        strandline.open_table(tmp_path / "t", as_of=table.history()[-1].committed_at)
