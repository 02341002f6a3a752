"""A scan as a pyarrow Dataset, and as what DuckDB takes for one.

Engines get the rows of the scan, not its files. Files hold rows that have expired, columns under
old names and types, and NaN outside the bounds that pyarrow believes in (it skips row groups by
them); nothing but our own reader also checks footers against the manifest. So the dataset answers
from scans: what is asked for, columns and filter, becomes part of a scan and prunes like any other.

pyarrow's C++ parts (joins, writing a dataset, unions) do not ask a Python class. They find Arrow
files in a filesystem that exists in memory only, and that fills a file from the scan when it is
opened. That costs memory but never rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from strandline.readers.narrowing import narrowed
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.from_pyarrow import from_pyarrow, implied_by_pyarrow
from strandline.tableformat.pyarrow_tree import columns_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.readers.scan import Scan
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.segments import SegmentEntry

_PIECE_ROWS: Final = 1_000_000
"""About how many rows one file holds that pyarrow's C++ parts open."""


class ScanDataset(ds.FileSystemDataset):  # type: ignore[misc] # pyarrow ships no types
    """The rows of a scan; filters prune, and mean what they mean in pyarrow."""

    def __init__(self, scan: Scan) -> None:
        files = _ScanFiles(scan)
        filesystem = pafs.PyFileSystem(files)
        kind = ds.IpcFileFormat()
        fragments = [kind.make_fragment(path, filesystem) for path in files.paths]
        super().__init__(fragments, scan.schema, kind, filesystem)
        self._scan = scan

    def scanner(
        self,
        columns: Any = None,
        filter: Any = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> ds.Scanner:
        """A pyarrow Scanner over the rows, pruned by the filter; it can be used once."""
        wanted = self._scanner_options({"filter": filter})["filter"]
        pushed, left = (None, None) if wanted is None else self._pushed(wanted)
        names = self._names(columns, left)
        source = narrowed(self._scan, names or ["_seq"], pushed)
        return ds.Scanner.from_batches(source.to_reader(), columns=columns, filter=left, **options)

    def _pushed(self, wanted: Any) -> tuple[Expression | None, Any]:
        """What the scan filters by, and what pyarrow does then."""
        return implied_by_pyarrow(wanted, self._scan.schema), wanted

    def _names(self, columns: Any, left: Any) -> list[str]:
        """The columns of the scan that are given, computed with, or looked at by the filter."""
        names = self._scan.schema.names
        if columns is None:
            return list(names)
        computed = columns.values() if isinstance(columns, dict) else ()
        try:
            used = [columns_in(e) for e in computed]
            used.append(frozenset() if left is None else columns_in(left))
        except InvalidInput:
            return list(names)
        listed = () if isinstance(columns, dict) else columns
        wanted = frozenset(listed).union(*used)
        return [name for name in names if name in wanted]

    def filter(self, expression: Any) -> ScanDataset:
        """The dataset without the rows for which the expression is not true."""
        made: ScanDataset = super().filter(expression)
        made._scan = self._scan  # pyarrow makes the copy without calling __init__
        return made

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # noqa: A002 - pyarrow's name
        """How many rows there are; reads only what the filter looks at."""
        return int(self.scanner(columns=[], filter=filter, **options).count_rows())

    def __reduce__(self) -> Any:
        raise InvalidInput(
            "a dataset over a scan cannot be pickled: it belongs to the process that opened the "
            "table. Send the table's URL and version, and open it there."
        )


class DuckDBDataset(ScanDataset):
    """The rows of a scan for DuckDB, whose filters mean what ours mean.

    DuckDB says its filters with pyarrow's words and believes the answer. NaN is the greatest
    number to both of us, and not to pyarrow, so they are answered as filters of ours.
    """

    def _pushed(self, wanted: Any) -> tuple[Expression | None, Any]:
        try:
            ours = from_pyarrow(wanted)
        except InvalidInput:
            return super()._pushed(wanted)
        is_pushed = self._scan.request.limit is None
        return ours, None if is_pushed else ours.to_pyarrow(self._scan.schema)


class _ScanFiles(pafs.FileSystemHandler):  # type: ignore[misc] # pyarrow ships no types
    """Arrow files, each with the rows of a range of sequence numbers, made when opened."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._ranges = {f"rows-{start}.arrow": (start, end) for start, end in _seq_ranges(scan)}

    @property
    def paths(self) -> list[str]:
        return list(self._ranges)

    def get_type_name(self) -> str:
        return "strandline"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[pafs.FileInfo]:
        return [
            pafs.FileInfo(
                path, pafs.FileType.File if path in self._ranges else pafs.FileType.NotFound
            )
            for path in paths
        ]

    def open_input_file(self, path: str) -> pa.NativeFile:
        start, end = self._ranges[path]
        piece = self._scan if end is None else self._scan.changed(start_seq=start, end_seq=end)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, piece.schema) as file:
            for batch in piece.to_batches():
                file.write_batch(batch)
        return pa.BufferReader(sink.getvalue())

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise InvalidInput("a scan is read, not changed: its filesystem exists in memory only")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refused
    delete_root_dir_contents = delete_file = move = copy_file = _refused
    open_output_stream = open_append_stream = _refused


def _seq_ranges(scan: Scan) -> list[tuple[int, int | None]]:
    """Ranges of sequence numbers that together hold all rows; an open end means the whole scan."""
    request = scan.request
    ordered = request.order_by is not None or request.descending
    if ordered or request.limit is not None or scan.unflushed_rows:
        return [(0, None)]
    segments = scan.plan().segments
    least = request.start_seq or 0
    end = max((entry.max_seq + 1 for entry in segments), default=least)
    end = end if request.end_seq is None else min(end, request.end_seq)
    cuts = {least, end, *(min(max(least, start), end) for start in _starts(segments))}
    return list(pairwise(sorted(cuts))) if least < end else []


def _starts(segments: Sequence[SegmentEntry]) -> list[int]:
    """Where to cut, so that each piece has about the same number of rows."""
    starts: list[int] = []
    rows = 0
    for entry in segments:
        if rows >= _PIECE_ROWS:
            starts.append(entry.min_seq)
            rows = 0
        rows += entry.row_count
    return starts
