"""What writers were told, and whether the table agrees: the promises of a commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat import codec, manifest, paths
from strandline.tableformat.errors import ObjectMissing
from strandline.tableformat.lifecycle import is_hidden
from strandline.tableformat.pages import SegmentPage
from strandline.tableformat.segments import PageRef, SegmentEntry, window_from_json

if TYPE_CHECKING:
    from strandline.table import Commit
    from strandline.tableformat.manifest import DocumentRef, Manifest
    from strandline.tableformat.segments import Summary
    from strandline.tableformat.storage import Storage

SCHEMA = {"at": "int64", "batch": "int64", "i": "int32", "text": "string"}
BASE_TS = 1_799_999_000_000


Verified = dict[tuple[str, ...], Any]
"""Objects that were compared with a reference already, and what was found in them."""


class BrokenPromise(AssertionError):
    """The table does not hold what a writer was told."""


class Told(IntEnum):
    """What a writer knows of its batch; more certain answers are greater."""

    REFUSED = 0
    """An error that says nothing was changed: the rows must not be there."""
    NOTHING = 1
    """The process crashed, or the outcome is unknown: all rows or none."""
    DONE = 2
    """Acknowledged: the rows are there once."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that say where they belong."""

    number: int
    rows: int = 3
    first_ts: int = BASE_TS
    step_ms: int = 1_000
    key: tuple[str, int] | None = None

    def data(self) -> list[dict[str, Any]]:
        return [
            {
                "at": self.first_ts + i * self.step_ms,
                "batch": self.number,
                "i": i,
                "text": f"{self.number}-{i}",
            }
            for i in range(self.rows)
        ]


@dataclass
class Ledger:
    """Every batch that any process tried to append, and what it was told."""

    batches: dict[int, Batch] = field(default_factory=dict)
    told: dict[int, Told] = field(default_factory=dict)
    commits: dict[int, Commit] = field(default_factory=dict)
    orders: dict[str, list[int]] = field(default_factory=dict)
    """By producer: its batches in the order in which its writer was given them."""
    columns: set[str] = field(default_factory=set)
    """Columns whose change of schema was acknowledged."""
    deleted: set[int] = field(default_factory=set)
    """Batches that somebody tried to delete, to hide or to roll back."""
    together: list[frozenset[int]] = field(default_factory=list)
    """Batches that one step takes away: all of them or none."""
    uuids: set[str] = field(default_factory=set)
    """Tables whose creation was acknowledged."""

    def note(self, batch: Batch, told: Told, commit: Commit | None = None) -> None:
        self.batches[batch.number] = batch
        self.told[batch.number] = max(told, self.told.get(batch.number, Told.REFUSED))
        if commit is not None and not (commit.duplicate and self._has_later(batch)):
            earlier = self.commits.setdefault(batch.number, commit)
            _promise(
                (earlier.version, earlier.first_seq, earlier.last_seq)
                == (commit.version, commit.first_seq, commit.last_seq),
                f"batch {batch.number} was told {earlier}, and later {commit}",
            )

    def _has_later(self, batch: Batch) -> bool:
        """Whether the writer's position stands for a later batch, and gives that one's result."""
        return batch.key is not None and any(
            other.key is not None
            and other.key[0] == batch.key[0]
            and other.key[1] > batch.key[1]
            and self.told[number] is not Told.REFUSED
            for number, other in self.batches.items()
        )

    def check_rows(
        self, rows: list[dict[str, Any]], next_seq: int, *, clamped: bool, keyed: bool = False
    ) -> None:
        """Acknowledged rows once, other batches whole or not at all, numbers dense.

        `keyed`: deletes take numbers as well, so that those of rows have gaps.
        """
        there = {row["batch"] for row in rows}
        gone = {
            seq
            for number in self.deleted - there
            for seq in range(self.commits[number].first_seq, self.commits[number].last_seq + 1)
        }
        _promise(
            keyed or [row["_seq"] for row in rows] == [n for n in range(next_seq) if n not in gone],
            f"sequence numbers are not 0 to {next_seq - 1}: {[row['_seq'] for row in rows]}",
        )
        found: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            found.setdefault(row["batch"], []).append(row)
        _promise(found.keys() <= self.batches.keys(), "the table holds rows nobody appended")
        for number, batch in self.batches.items():
            self._check_batch(batch, self.told[number], found.get(number, []))
        for group in self.together:
            _promise(
                not group & there or group <= there | self._refused(), f"half of {group} is gone"
            )
        for producer, numbers in self.orders.items():
            firsts = [found[number][0]["_seq"] for number in numbers if number in found]
            _promise(firsts == sorted(firsts), f"batches of {producer} changed places: {firsts}")
        if clamped:
            times = [row["_ts"] for row in rows]
            _promise(times == sorted(times), f"_ts goes back in a clamped table: {times}")

    def _refused(self) -> set[int]:
        return {number for number, told in self.told.items() if told is Told.REFUSED}

    def _check_batch(self, batch: Batch, told: Told, rows: list[dict[str, Any]]) -> None:
        name = f"batch {batch.number} ({told.name.lower()})"
        _promise(bool(rows) or told is not Told.DONE, f"{name} is lost")
        _promise(not rows or told is not Told.REFUSED, f"{name} is in the table")
        if not rows:
            return
        given = batch.data()
        got = [{name: row[name] for name in given[0]} for row in rows]
        _promise(got == given, f"{name} holds {got}, not {given}")
        first = rows[0]["_seq"]
        seqs = [row["_seq"] for row in rows]
        _promise(seqs == list(range(first, first + len(rows))), f"{name} is torn apart: {seqs}")
        commit = self.commits.get(batch.number)
        if commit is not None:
            _promise(
                (commit.first_seq, commit.last_seq, commit.rows) == (first, seqs[-1], len(rows)),
                f"{name} was told {commit} and lies at {first} to {seqs[-1]}",
            )


def check_store(storage: Storage) -> Manifest:
    """Walk every version: dense, chained by checksum, no reference to a missing or wrong object.

    This reads objects as bytes and compares them itself, so that a reader's leniency hides nothing.
    """
    markers = [paths.gc_marker_version(name) for name in storage.list(paths.GC_MARKERS)]
    oldest = max([1, *(marker for marker in markers if marker is not None)])
    names = storage.list(paths.MANIFESTS)
    found = sorted(v for v in map(paths.manifest_version, names) if v is not None and v >= oldest)
    _promise(
        bool(found) and found == list(range(oldest, found[-1] + 1)), f"versions have gaps: {found}"
    )
    verified: Verified = {}
    newest = decoded(storage.read(paths.manifest_path(found[-1])), found[-1])
    for version in newest.lifecycle.tagged - set(found):
        _check_references(
            storage,
            decoded(_present(storage, paths.manifest_path(version)), version),
            newest,
            verified,
        )
    head: Manifest | None = None
    parent_sum = ""
    for version in found:
        data = storage.read(paths.manifest_path(version))
        current = decoded(data, version)
        if head is not None:
            _promise(current.parent_xxh64 == parent_sum, f"version {version} has another parent")
            _promise(current.table_uuid == head.table_uuid, "the table's uuid has changed")
            _promise(current.next_seq >= head.next_seq, "the tail went back")
            _promise(current.floor_ts >= head.floor_ts, "the floor fell")
            _promise(current.trim_seq >= head.trim_seq, "the trim point fell")
            _promise(
                current.commit.committed_at > head.commit.committed_at, "commit times do not rise"
            )
        _check_references(storage, current, newest, verified)
        head, parent_sum = current, codec.checksum(data)
    assert head is not None
    return head


@lru_cache(maxsize=512)
def decoded(data: bytes, version: int) -> Manifest:
    """Decode a manifest; cases begin alike, so most of them are decoded once."""
    return manifest.from_json(codec.decode_document(data, f"manifest {version}"), version)


def _check_references(
    storage: Storage, current: Manifest, newest: Manifest, verified: Verified
) -> None:
    """Everything that a version lists and that the newest floor and trim point do not hide."""

    def is_visible(part: Summary) -> bool:
        return not is_hidden(part, newest.floor_ts, newest.trim_seq)

    windows = list(current.windows)
    for ref in filter(is_visible, current.window_pages):
        text = codec.decode_document(_object(storage, ref, verified), ref.path)
        windows += [window_from_json(window) for window in text["windows"]]
    for position_page in current.position_pages:
        _object(storage, position_page, verified)
    segments = list(current.segments)
    for window in windows:
        for ref in filter(is_visible, window.pages):
            segments += _listed(storage, ref, verified)
    rows = sum(entry.row_count for entry in segments)
    hides = newest.floor_ts or newest.trim_seq
    _promise(
        rows == current.next_seq - current.deleted_rows or bool(hides),
        f"version {current.version} lists {rows} rows of {current.next_seq}",
    )
    for entry in filter(is_visible, segments):
        _check_segment(storage, entry, verified)


def _listed(storage: Storage, ref: PageRef, verified: Verified) -> list[SegmentEntry]:
    key = (ref.path, ref.xxh64, "entries")
    if key not in verified:
        page = SegmentPage(ref, _object(storage, ref, verified))
        verified[key] = page.entries(np.arange(page.count))
    entries: list[SegmentEntry] = verified[key]
    return entries


def _object(storage: Storage, ref: PageRef | DocumentRef, verified: Verified) -> bytes:
    key = (ref.path, ref.xxh64, str(ref.object_bytes))
    if key not in verified:
        data = _present(storage, ref.path)
        _promise(
            len(data) == ref.object_bytes and codec.checksum(data) == ref.xxh64,
            f"{ref.path} is not what its reference says",
        )
        verified[key] = data
    found: bytes = verified[key]
    return found


def _check_segment(storage: Storage, entry: SegmentEntry, verified: Verified) -> None:
    key = (entry.path, entry.footer_xxh64, str(entry.size_bytes))
    if key in verified:
        return
    data = _present(storage, entry.path)
    footer = data[-8 - entry.footer_bytes : -8]
    _promise(
        len(data) == entry.size_bytes and codec.checksum(footer) == entry.footer_xxh64,
        f"{entry.path} is not what its entry says ({len(data)} of {entry.size_bytes} bytes)",
    )
    verified[key] = None


def _present(storage: Storage, path: str) -> bytes:
    try:
        return storage.read(path)
    except ObjectMissing:
        raise BrokenPromise(f"{path} is listed and missing") from None


def _promise(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads like assert
    if not holds:
        raise BrokenPromise(otherwise)
