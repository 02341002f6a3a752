"""Many segments of a page as columns, for plans that only say which files are read.

Making an object for each of a hundred thousand segments takes seconds. What an entry promises is
checked for all of them at once instead; where one breaks it, or says more than the fixed columns,
entries are made after all, which tell the error.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat import paths
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.pages import EXTRA, FIXED, INDEX, NUMBERS_STORED
from strandline.tableformat.segments import PARQUET_FRAME_BYTES
from strandline.tableformat.windows import parse_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.tableformat.pages import SegmentPage
    from strandline.tableformat.segments import SegmentEntry

Array = np.ndarray[Any, Any]
_NUMBERS = (
    *("row_count", "size_bytes", "min_seq", "max_seq", "min_ts", "max_ts"),
    *("footer_bytes", "schema_version", "created_at"),
)


@dataclass(frozen=True, slots=True)
class PageFiles:
    """Some segments of a page, each number of theirs as one array."""

    page: SegmentPage
    rows: Array
    paths: Sequence[str]
    numbers: dict[str, Array]
    """By the names of the page's columns, and `first_seq`: what row 0 of the file counts from."""
    window_starts: Array
    footer_hashes: Array
    """Checksums as numbers."""

    def taken(self, places: Array) -> PageFiles:
        """Only some of them."""
        return PageFiles(
            self.page,
            self.rows[places],
            [self.paths[place] for place in places.tolist()],
            {name: values[places] for name, values in self.numbers.items()},
            self.window_starts[places],
            self.footer_hashes[places],
        )

    def entries(self) -> list[SegmentEntry]:
        """The segments as records, after all."""
        return self.page.entries(self.rows)


def say_more(page: SegmentPage) -> tuple[Array, Array]:
    """Which rows name indexes, and which have fields beyond the fixed columns."""
    return page.is_said(INDEX), page.is_said(EXTRA)


def page_files(page: SegmentPage, rows: Array) -> PageFiles | None:
    """Rows of a page as columns; None: one is wrong, and looking at each will say which."""
    numbers = {name: page.integers(name)[rows] for name in _NUMBERS}
    has_base, bases = page.is_said(FIXED.field("seq_base"))[rows], page.sequence_bases()[rows]
    names = page.texts("path", rows)
    if not paths.are_segment_paths(names):
        return None
    prefixes = [name[: name.index("/")] for name in names]
    windows = {prefix: parse_prefix(prefix) for prefix in set(prefixes)}
    starts, ends = (
        np.array([limits[prefix] for prefix in prefixes], np.int64)
        for limits in (
            {prefix: window.start_ms for prefix, window in windows.items()},
            {prefix: window.end_ms for prefix, window in windows.items()},
        )
    )
    if not _are_possible(numbers, has_base, bases, starts, ends):
        return None
    # As the manifest says it: rows of a whole batch count from its first, others store numbers.
    numbers["first_seq"] = np.where(has_base & (bases >= 0), bases, numbers["min_seq"])
    hashes = checksum_numbers(page.texts("footer_xxh64", rows))
    return PageFiles(page, rows, names, numbers, starts, hashes)


def checksum_numbers(texts: Sequence[str]) -> Array:
    """Checksums as unsigned numbers."""
    try:
        numbers = np.frombuffer(binascii.unhexlify("".join(texts)), ">u8")
    except ValueError:
        numbers = np.empty(0, ">u8")
    if len(numbers) != len(texts) or not {16}.issuperset(map(len, texts)):
        raise CorruptTable("the table's metadata has a checksum that is not 16 hex digits")
    return numbers


def _are_possible(
    numbers: dict[str, Array], has_base: Array, bases: Array, starts: Array, ends: Array
) -> bool:
    """What `segments.check_entry` asks of each."""
    low, high = numbers["min_seq"], numbers["max_seq"]
    first, last = numbers["min_ts"], numbers["max_ts"]
    counts = numbers["row_count"]
    possible = (
        (np.minimum(counts, numbers["footer_bytes"]) >= 1)
        & (numbers["schema_version"] >= 1)
        & (numbers["created_at"] >= 0)
        & (low >= 0)
        & (low <= high)
        & (bases >= NUMBERS_STORED)
        & (has_base | (high - low + 1 == counts))
        & (starts <= first)
        & (first <= last)
        & (last < ends)
        & (numbers["footer_bytes"].astype(np.int64) + PARQUET_FRAME_BYTES <= numbers["size_bytes"])
    )
    return bool(possible.all())
