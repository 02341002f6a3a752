"""Entries for immutable files: data segments, and the pages that list them.

An entry carries size and checksum of what it refers to, so that no reader has to trust a store,
and stats, so that no reader has to open what cannot match. Entries keep fields they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat import codec, paths, stats
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.fields import Fields
from strandline.tableformat.indexes.reference import (
    IndexRef,
    KindsByColumn,
    index_from_json,
    kinds_from_json,
    kinds_to_json,
)
from strandline.tableformat.windows import parse_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.windows import Window

DENSE: Final = "dense"
"""Row i of the file has sequence number `min_seq + i`."""
OFFSET: Final = "offset"
"""A row's sequence number is `seq_base` plus its `_off` column."""
STORED: Final = "stored"
"""A row's sequence number is its `_seq` column: rows of several batches are in one file."""
TOMBSTONES: Final = "tombstones"
"""The field of an entry whose rows delete keys, and the reader feature of tables that have some."""
PARQUET_FRAME_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of some rows without reading them."""

    row_count: int
    size_bytes: int
    min_seq: int
    max_seq: int
    min_ts: int
    max_ts: int
    column_stats: Mapping[str, Any]
    """Column id → encoded stats; decoded by `stats_of`, because most are never looked at."""

    def stats_of(self, column: Column) -> stats.ColumnStats | None:
        """Typed stats of a column; None where none are kept, and anything may match."""
        value = self.column_stats.get(str(column.id))
        return None if value is None else stats.from_json(column.type, value, "column_stats")


def _summary_fields(fields: Fields) -> dict[str, Any]:
    out: dict[str, Any] = {
        "row_count": fields.int64("row_count", least=1),
        "size_bytes": fields.int64("size_bytes", least=1),
        "min_seq": fields.int64("min_seq"),
        "max_seq": fields.int64("max_seq"),
        "min_ts": fields.int64("min_ts"),
        "max_ts": fields.int64("max_ts"),
        "column_stats": fields.object("column_stats"),
    }
    if out["min_seq"] > out["max_seq"] or out["min_ts"] > out["max_ts"]:
        raise CorruptTable(f"{fields.where}: a minimum is above its maximum")
    if out["row_count"] > out["max_seq"] - out["min_seq"] + 1:
        raise CorruptTable(f"{fields.where}: more rows than sequence numbers")
    return out


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "row_count": str(summary.row_count),
        "size_bytes": str(summary.size_bytes),
        "min_seq": str(summary.min_seq),
        "max_seq": str(summary.max_seq),
        "min_ts": str(summary.min_ts),
        "max_ts": str(summary.max_ts),
        "column_stats": summary.column_stats,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry(Summary):
    """One immutable data file, described well enough to plan a scan without opening it."""

    path: str
    """Relative to the table root, so that a copied or moved table stays readable."""
    window: Window
    shard: int
    footer_bytes: int
    """Length of the Parquet footer (the thrift part, before its length and magic)."""
    footer_xxh64: str
    schema_id: int
    created_at: int
    rows_are: str = DENSE
    seq_base: int = 0
    """Only for OFFSET: what `_off` counts from."""
    ts_stored: bool = False
    """Whether the file holds `_ts`; otherwise it follows from the time column."""
    tombstones: bool = False
    """Whether its rows say that keys are deleted: they hold the key and no other column."""
    index: IndexRef | None = None
    """The index file beside it; None: there is none, and its rows are scanned."""
    index_debt: KindsByColumn = field(default_factory=dict)
    """Indexes that were planned and left out for want of time; compaction builds them."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    encoded: bytes = field(default=b"", repr=False, compare=False)
    """The entry as JSON, kept so that a commit does not encode old entries again."""

    def to_json(self) -> bytes:
        """The entry as it stands in a manifest."""
        return self.encoded or codec.to_text(segment_document(self), "segment")


def segment_document(entry: SegmentEntry) -> dict[str, Any]:
    """The entry as a JSON object."""
    out: dict[str, Any] = {"path": entry.path, **_summary_json(entry)}
    out["footer_bytes"] = entry.footer_bytes
    out["footer_xxh64"] = entry.footer_xxh64
    out["schema_version"] = entry.schema_id
    out["status"] = "committed"
    out["created_at"] = str(entry.created_at)
    out["rows_are"] = entry.rows_are
    if entry.rows_are == OFFSET:
        out["seq_base"] = str(entry.seq_base)
    out["ts_stored"] = entry.ts_stored
    return {**extra_fields(entry), **out, **index_fields(entry)}


def extra_fields(entry: SegmentEntry) -> dict[str, Any]:
    """What a page keeps of an entry in its column `extra`: seldom said, or not known here."""
    return {**entry.extra, **({TOMBSTONES: True} if entry.tombstones else {})}


def extra_fields_from_json(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Decode and check what stands in `extra`, as fields for a record."""
    extra = {key: value[key] for key in value if key not in _SEGMENT_FIELDS}
    if value.get(TOMBSTONES) is None:
        return {"extra": extra}
    return {"extra": extra, "tombstones": Fields(value, where).flag(TOMBSTONES)}


def index_fields(entry: SegmentEntry) -> dict[str, Any]:
    """What an entry says of its indexes; nothing where there are none."""
    out: dict[str, Any] = {}
    if entry.index is not None:
        out["index"] = entry.index.to_json()
    if entry.index_debt:
        out["index_debt"] = kinds_to_json(entry.index_debt)
    return out


def index_fields_from_json(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Decode and check what an entry says of its indexes, as fields for a record."""
    index, debt = value.get("index"), value.get("index_debt")
    out: dict[str, Any] = {}
    if index is not None:
        out["index"] = index_from_json(index, where)
    if debt is not None:
        out["index_debt"] = kinds_from_json(Fields(debt, f"{where}.index_debt").value, where)
    return out


_SEGMENT_FIELDS: Final = frozenset(
    [
        "path",
        "row_count",
        "size_bytes",
        "min_seq",
        "max_seq",
        "min_ts",
        "max_ts",
        "column_stats",
        "footer_bytes",
        "footer_xxh64",
        "schema_version",
        "status",
        "created_at",
        "rows_are",
        "seq_base",
        "ts_stored",
        "index",
        "index_debt",
        TOMBSTONES,
    ]
)


def segment_from_json(value: Any, where: str = "segment") -> SegmentEntry:
    """Decode and check a segment entry."""
    fields = Fields(value, where)
    name = paths.parse_segment_path(value.get("path"))
    rows_are = fields.choice("rows_are", (DENSE, OFFSET, STORED))
    fields.choice("status", ("committed",))
    entry = SegmentEntry(
        path=value["path"],
        window=name.window,
        shard=name.shard,
        footer_bytes=fields.int32("footer_bytes", least=1),
        footer_xxh64=fields.checksum("footer_xxh64"),
        schema_id=fields.int32("schema_version", least=1),
        created_at=fields.int64("created_at"),
        rows_are=rows_are,
        seq_base=fields.int64("seq_base") if rows_are == OFFSET else 0,
        ts_stored=fields.flag("ts_stored"),
        encoded=codec.to_text(value, where),
        **extra_fields_from_json(value, where),
        **index_fields_from_json(value, where),
        **_summary_fields(fields),
    )
    check_entry(entry, where)
    return entry


def check_entry(entry: SegmentEntry, where: str) -> None:
    """Rules between an entry's fields, for entries of manifests and of pages alike."""
    if (
        min(entry.row_count, entry.footer_bytes, entry.schema_id) < 1
        or not 0 <= entry.min_seq <= entry.max_seq
        or min(entry.seq_base, entry.created_at) < 0
    ):
        raise CorruptTable(f"{where} {entry.path}: impossible counts")
    if entry.rows_are == DENSE and entry.max_seq - entry.min_seq + 1 != entry.row_count:
        raise CorruptTable(f"{where} {entry.path}: dense rows need one sequence number each")
    if not entry.window.start_ms <= entry.min_ts <= entry.max_ts < entry.window.end_ms:
        raise CorruptTable(f"{where} {entry.path}: timestamps lie outside the window")
    # A Parquet file holds its footer, the footer's length, and its magic at both ends.
    if entry.footer_bytes + PARQUET_FRAME_BYTES > entry.size_bytes:
        raise CorruptTable(
            f"{where} {entry.path}: a footer of {entry.footer_bytes} bytes does not fit a file of "
            f"{entry.size_bytes}"
        )


# --- references to pages -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRef(Summary):
    """An immutable page: its place, its checksum, and a summary of everything it lists."""

    path: str
    object_bytes: int
    """Size of the page itself; `size_bytes` is that of the files it lists."""
    xxh64: str
    entries: int
    """Segments in a segment page, windows in a window page."""

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "object_bytes": str(self.object_bytes),
            "xxh64": self.xxh64,
            "entries": self.entries,
            **_summary_json(self),
        }


def page_ref_from_json(value: Any, suffix: str, where: str) -> PageRef:
    """Decode and check a reference to a page whose file ends in `suffix`."""
    fields = Fields(value, where)
    paths.parse_page_path(value.get("path"), suffix)
    return PageRef(
        path=value["path"],
        object_bytes=fields.int64("object_bytes", least=1),
        xxh64=fields.checksum("xxh64"),
        entries=fields.int32("entries", least=1),
        **_summary_fields(fields),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEntry:
    """The segment pages of one window. Several entries may speak of the same window."""

    window: Window
    pages: tuple[PageRef, ...]
    encoded: bytes = field(default=b"", repr=False, compare=False)

    def to_json(self) -> bytes:
        """The entry as it stands in a manifest or a window page."""
        if self.encoded:
            return self.encoded
        pages = [page.to_json() for page in self.pages]
        return codec.to_text({"prefix": self.window.prefix, "pages": pages}, "window")


def window_from_json(value: Any, where: str = "window") -> WindowEntry:
    """Decode and check a window with its pages."""
    fields = Fields(value, where)
    window = parse_prefix(fields.text("prefix"))
    pages = tuple(
        page_ref_from_json(page, ".parquet", f"{where} {window.prefix} page")
        for page in fields.list("pages")
    )
    for page in pages:
        if not window.start_ms <= page.min_ts <= page.max_ts < window.end_ms:
            raise CorruptTable(f"{where} {window.prefix}: page timestamps lie outside the window")
    return WindowEntry(window=window, pages=pages, encoded=codec.to_text(value, where))


def summarize(parts: Sequence[Summary], schema: Schema) -> dict[str, Any]:
    """The summary of many parts, as fields for a record that has one."""
    rows = [part.row_count for part in parts]
    column_stats: dict[str, Any] = {}
    ids = set.intersection(*(set(part.column_stats) for part in parts)) if parts else set()
    for column in schema.columns:
        if str(column.id) in ids:
            merged = stats.merged([part.stats_of(column) for part in parts], rows)
            if merged is not None:
                column_stats[str(column.id)] = merged.to_json(column.type)
    return {
        "row_count": sum(rows),
        "size_bytes": sum(part.size_bytes for part in parts),
        "min_seq": min(part.min_seq for part in parts),
        "max_seq": max(part.max_seq for part in parts),
        "min_ts": min(part.min_ts for part in parts),
        "max_ts": max(part.max_ts for part in parts),
        "column_stats": column_stats,
    }
