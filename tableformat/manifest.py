"""The root manifest: everything a reader must know of one table version, in one bounded object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from strandline.tableformat import codec, paths, segments
from strandline.tableformat import config as configs
from strandline.tableformat import schema as schemas
from strandline.tableformat.errors import CorruptTable, UnsupportedFormat
from strandline.tableformat.fields import Fields
from strandline.tableformat.lifecycle import (
    LIFECYCLE_FIELDS,
    Lifecycle,
    check_lifecycle,
    lifecycle_from_json,
)
from strandline.tableformat.values import INT64_MAX

FORMAT_NAME: Final = "strandline"
FORMAT_VERSION: Final = 1
KEYED: Final = "keyed"
"""The table has a primary key: of the rows with one key only the newest counts."""
USER_SCOPED: Final = "user_scope"
"""Rows lie in chains of users, and the table's own manifest lists none."""
READER_FEATURES: Final[frozenset[str]] = frozenset({KEYED, segments.TOMBSTONES, USER_SCOPED})
"""Features a reader must understand, that this library does. Version 1 itself needs none."""
STREAM: Final = "stream"
"""The feature of stream tables, which only their own reader understands."""
WRITER_FEATURES: Final[frozenset[str]] = frozenset({USER_SCOPED})
HISTORY_LENGTH: Final = 32
EXTERNAL: Final = "external"
WAL: Final = "wal"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """One line of a table's history."""

    version: int
    commit_id: str
    committed_at: int
    operation: str
    rows: int = 0
    first_seq: int | None = None
    properties: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "version": str(self.version),
            "commit_id": self.commit_id,
            "committed_at": str(self.committed_at),
            "operation": self.operation,
            "rows": str(self.rows),
        }
        if self.first_seq is not None:
            out["first_seq"] = str(self.first_seq)
        if self.properties:
            out["properties"] = dict(self.properties)
        return out


def record_from_json(value: Any) -> CommitRecord:
    """Decode and check one line of history."""
    fields = Fields(value, "history")
    properties = fields.optional("properties") or {}
    if not isinstance(properties, dict) or any(type(v) is not str for v in properties.values()):
        raise CorruptTable("history.properties must map text to text")
    return CommitRecord(
        version=fields.int64("version", least=1),
        commit_id=fields.identity("commit_id"),
        committed_at=fields.int64("committed_at"),
        operation=fields.text("operation"),
        rows=fields.int64("rows"),
        first_seq=None if fields.optional("first_seq") is None else fields.int64("first_seq"),
        properties=tuple(properties.items()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last batch of one writer that is in the table, with the result it was given."""

    kind: str
    """EXTERNAL: the caller numbers its batches. WAL: a log's records, counted without gaps."""
    number: int
    """Last batch number, or last WAL record number."""
    incarnation: str | None = None
    """WAL only: which log the numbers belong to."""
    version: int
    first_seq: int
    rows: int
    committed_at: int
    previous: tuple[tuple[str, int], ...] = ()
    """WAL only: replaced incarnations and their last committed record, newest first."""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "kind": self.kind,
            "number": str(self.number),
            "version": str(self.version),
            "first_seq": str(self.first_seq),
            "rows": str(self.rows),
            "committed_at": str(self.committed_at),
        }
        if self.incarnation is not None:
            out["incarnation"] = self.incarnation
        if self.previous:
            out["previous"] = [{"incarnation": i, "number": str(n)} for i, n in self.previous]
        return out


def position_from_json(value: Any) -> Position:
    """Decode and check a writer position."""
    fields = Fields(value, "writer position")
    kind = fields.choice("kind", (EXTERNAL, WAL))
    return Position(
        kind=kind,
        number=fields.int64("number"),
        incarnation=fields.identity("incarnation") if kind == WAL else None,
        version=fields.int64("version", least=1),
        first_seq=fields.int64("first_seq"),
        rows=fields.int64("rows"),
        committed_at=fields.int64("committed_at"),
        previous=_previous(fields) if kind == WAL else (),
    )


def _previous(position: Fields) -> tuple[tuple[str, int], ...]:
    if position.optional("previous") is None:
        return ()
    replaced = [Fields(p, "writer position.previous") for p in position.list("previous")]
    return tuple((p.identity("incarnation"), p.int64("number")) for p in replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRef:
    """A page of writer positions: place, checksum, and the range of ids inside."""

    path: str
    object_bytes: int
    xxh64: str
    entries: int
    min_id: str
    max_id: str

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "object_bytes": str(self.object_bytes),
            "xxh64": self.xxh64,
            "entries": self.entries,
            "min_id": self.min_id,
            "max_id": self.max_id,
        }


def document_ref_from_json(value: Any) -> DocumentRef:
    """Decode and check a reference to a page of writer positions."""
    fields = Fields(value, "position page")
    paths.parse_page_path(value.get("path"), ".json.lz4")
    return DocumentRef(
        path=value["path"],
        object_bytes=fields.int64("object_bytes", least=1),
        xxh64=fields.checksum("xxh64"),
        entries=fields.int32("entries", least=1),
        min_id=fields.text("min_id"),
        max_id=fields.text("max_id"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One version of a table. Immutable; `actions.apply` makes the next one."""

    table_uuid: str
    version: int
    parent_xxh64: str | None
    """Checksum of the parent's bytes; None for version 1."""
    commit: CommitRecord
    schema: schemas.Schema
    next_column_id: int
    config: configs.Config
    next_seq: int = 0
    last_ts: int = 0
    """`_ts` of the newest row; 0 in an empty table."""
    floor_ts: int = 0
    trim_seq: int = 0
    files_floor: int = 0
    """Data files begun before this version are refused: vacuum may have removed them."""
    fence: str | None = None
    dropped_at: int | None = None
    """When the table was dropped; None: it was not."""
    shard_marks: dict[int, int] = field(default_factory=dict)
    """Greatest `_ts` appended to each shard: what a writer that begins measures lateness by."""
    positions: dict[str, Position] = field(default_factory=dict)
    position_pages: tuple[DocumentRef, ...] = ()
    history: tuple[CommitRecord, ...] = ()
    """The newest commits, newest first, this one included."""
    windows: tuple[segments.WindowEntry, ...] = ()
    window_pages: tuple[segments.PageRef, ...] = ()
    segments: tuple[segments.SegmentEntry, ...] = ()
    """The newest segments, in the order of their commits."""
    removed_files: tuple[str, ...] = ()
    """Files that the parent refers to and this version does not."""
    deleted_rows: int = 0
    """Rows that got numbers and were taken out again by deletes, overwrites and the like."""
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    extra: dict[str, Any] = field(default_factory=dict)
    root_version: int | None = None
    """Of a user's manifest: the table's version that it was joined with; not stored here."""
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What planning has worked out of this version and would work out again for the next scan."""

    @property
    def files_version(self) -> int:
        """The table's version, which names of new files carry: a user's files go by the root's."""
        return self.version if self.root_version is None else self.root_version

    @property
    def key_columns(self) -> tuple[schemas.Column, ...]:
        """The primary key; empty where every row counts."""
        return tuple(self.schema.by_id[i] for i in self.config.primary_key)

    def to_json(self) -> bytes:
        """The manifest as its JSON text (SPEC.md, root manifest)."""
        return codec.to_text(self.document(), f"manifest {self.version}")

    def document(self) -> dict[str, Any]:
        """The manifest's fields for JSON; large parts are text already."""
        document = {
            **self.extra,
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "reader_features": list(self.reader_features),
            "writer_features": list(self.writer_features),
            "table_uuid": self.table_uuid,
            "version": str(self.version),
            "parent_xxh64": self.parent_xxh64,
            "commit": self.commit.to_json(),
            "schema": orjson.Fragment(self.schema.json_text),
            "next_column_id": self.next_column_id,
            "config": self.config.to_json(),
            "tail": {"next_seq": str(self.next_seq), "last_ts": str(self.last_ts)},
            "floor_ts": str(self.floor_ts),
            "trim_seq": str(self.trim_seq),
            "files_floor": str(self.files_floor),
            "fence": self.fence,
            "positions": {key: p.to_json() for key, p in self.positions.items()},
            "position_pages": [page.to_json() for page in self.position_pages],
            "history": [record.to_json() for record in self.history],
            "windows": [orjson.Fragment(window.to_json()) for window in self.windows],
            "window_pages": [page.to_json() for page in self.window_pages],
            "segments": [orjson.Fragment(entry.to_json()) for entry in self.segments],
            "removed_files": list(self.removed_files),
        }
        if self.deleted_rows:
            document["deleted_rows"] = str(self.deleted_rows)
        if self.dropped_at is not None:
            document["dropped_at"] = str(self.dropped_at)
        if self.shard_marks:
            marks = sorted(self.shard_marks.items())
            document["shard_marks"] = {str(shard): str(mark) for shard, mark in marks}
        return document | self.lifecycle.to_json()


_FIELDS: Final = frozenset(
    [
        "format",
        "format_version",
        "reader_features",
        "writer_features",
        "table_uuid",
        "version",
        "parent_xxh64",
        "commit",
        "schema",
        "next_column_id",
        "config",
        "tail",
        "floor_ts",
        "trim_seq",
        "files_floor",
        "fence",
        "dropped_at",
        "shard_marks",
        "positions",
        "position_pages",
        "history",
        "windows",
        "window_pages",
        "segments",
        "removed_files",
        "deleted_rows",
        *LIFECYCLE_FIELDS,
    ]
)


def check_readable(
    document: Any, understood: frozenset[str] = READER_FEATURES
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Refuse a format version or a reader feature that is not known here, by its name.

    This comes before any other check: a newer format may have changed everything else.
    """
    fields = Fields(document, "manifest")
    if fields.optional("format") != FORMAT_NAME:
        raise CorruptTable("manifest: this is not a Strandline manifest")
    version = fields.int32("format_version")
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the table has format version {version}, and this library reads version "
            f"{FORMAT_VERSION}. Install a newer strandline."
        )
    needed, for_writing = (
        tuple(fields.list(name)) for name in ("reader_features", "writer_features")
    )
    if any(type(feature) is not str for feature in needed + for_writing):
        raise CorruptTable("manifest: feature names must be text")
    unknown = sorted(set(needed) - understood)
    if unknown == [STREAM]:
        raise UnsupportedFormat(
            "this is a stream table: its rows are in logs, one for each user, and not in segments. "
            "Open it with strandline.open_table(url, kind='stream'); in Spark, read it with "
            "strandline.spark.read_stream_table."
        )
    if unknown:
        raise UnsupportedFormat(
            f"the table needs reader features that this library does not know: "
            f"{', '.join(unknown)[:200]}. Install a newer strandline."
        )
    return needed, for_writing


def check_writable(manifest: Manifest, understood: frozenset[str] = WRITER_FEATURES) -> None:
    """Refuse to write a table with a writer feature that is not known here."""
    unknown = sorted(set(manifest.writer_features) - understood)
    if unknown:
        raise UnsupportedFormat(
            f"writing this table needs features that this library does not know: "
            f"{', '.join(unknown)[:200]}. Nothing was changed. Install a newer strandline."
        )


def from_json(
    document: Any,
    version: int,
    known: Manifest | None = None,
    understood: frozenset[str] = READER_FEATURES,
    *,
    root_version: int | None = None,
) -> Manifest:
    """Decode and check a manifest that was found under the name of `version`.

    What stands in `known`, an earlier manifest, in the very same words is taken from there: of
    two neighbouring versions most is the same, and writers in a queue decode one per commit.
    `root_version`: of a user's manifest, the version of the table that it was written at.
    """
    reader_features, writer_features = check_readable(document, understood)
    fields = Fields(document, "manifest")
    if fields.int64("version", least=1) != version:
        raise CorruptTable(
            f"the manifest stored as version {version} says it is {document['version']!r}"
        )
    commit = record_from_json(fields.object("commit"))
    if commit.version != version:
        raise CorruptTable(f"manifest {version}: its commit record is of another version")
    reuse = _Reuse(known)
    schema = reuse.schema(fields.object("schema"))
    tail = Fields(fields.object("tail"), "manifest.tail")
    fence = fields.optional("fence")
    if fence is not None and type(fence) is not str:
        raise CorruptTable("manifest.fence must be text or null")
    parent = fields.optional("parent_xxh64")
    if (parent is None) != (version == 1):
        raise CorruptTable("manifest.parent_xxh64 must be null in version 1, and only there")
    manifest = Manifest(
        table_uuid=fields.identity("table_uuid"),
        version=version,
        parent_xxh64=None if parent is None else fields.checksum("parent_xxh64"),
        commit=commit,
        schema=schema,
        next_column_id=fields.int32("next_column_id", least=1),
        config=configs.from_json(fields.object("config"), schema),
        next_seq=tail.int64("next_seq"),
        last_ts=tail.int64("last_ts"),
        floor_ts=fields.int64("floor_ts"),
        trim_seq=fields.int64("trim_seq"),
        files_floor=fields.int64("files_floor"),
        fence=fence,
        dropped_at=(None if fields.optional("dropped_at") is None else fields.int64("dropped_at")),
        shard_marks=_shard_marks(fields.optional("shard_marks") or {}),
        positions={k: position_from_json(v) for k, v in fields.object("positions").items()},
        position_pages=tuple(document_ref_from_json(p) for p in fields.list("position_pages")),
        history=tuple(reuse.record(r) for r in fields.list("history")),
        windows=tuple(reuse.window(w) for w in fields.list("windows")),
        window_pages=tuple(
            segments.page_ref_from_json(p, ".json.lz4", "window page")
            for p in fields.list("window_pages")
        ),
        segments=tuple(reuse.segment(s) for s in fields.list("segments")),
        removed_files=tuple(paths.check_removable(p) for p in fields.list("removed_files")),
        deleted_rows=(
            0 if fields.optional("deleted_rows") is None else fields.int64("deleted_rows")
        ),
        reader_features=reader_features,
        writer_features=writer_features,
        lifecycle=lifecycle_from_json(fields),
        extra={key: document[key] for key in document if key not in _FIELDS},
        root_version=root_version,
    )
    _check_consistent(manifest)
    return manifest


def _shard_marks(value: Any) -> dict[int, int]:
    marks = Fields(value, "manifest.shard_marks")
    if not all(paths.is_shard(name) for name in marks.value):
        raise CorruptTable("manifest.shard_marks: a key is no shard")
    return {int(shard): marks.int64(shard) for shard in marks.value}


class _Reuse:
    """Parts of an earlier manifest, for a later one that repeats them."""

    def __init__(self, known: Manifest | None) -> None:
        self._schema = known.schema if known else None
        self._records = {r.commit_id: r for r in known.history} if known else {}
        self._segments = {s.path: s for s in known.segments} if known else {}
        self._windows = {w.encoded: w for w in known.windows if w.encoded} if known else {}

    def schema(self, value: dict[str, Any]) -> schemas.Schema:
        if self._schema is not None and schemas.to_json(self._schema) == value:
            return self._schema
        return schemas.from_json(value)

    def record(self, value: Any) -> CommitRecord:
        known = self._records.get(_text_in(value, "commit_id"))
        return known if known and known.to_json() == value else record_from_json(value)

    def segment(self, value: Any) -> segments.SegmentEntry:
        known = self._segments.get(_text_in(value, "path"))
        if known is not None and known.encoded == orjson.dumps(value):
            return known
        return segments.segment_from_json(value)

    def window(self, value: Any) -> segments.WindowEntry:
        known = self._windows.get(codec.to_text(value, "window")) if self._windows else None
        return segments.window_from_json(value) if known is None else known


def _text_in(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def check_tombstones(manifest: Manifest, entry: segments.SegmentEntry) -> None:
    """Refuse deleted keys where readers were not told of any: older ones would not apply them."""
    if entry.tombstones and segments.TOMBSTONES not in manifest.reader_features:
        raise CorruptTable(
            f"manifest {manifest.version}: {entry.path} holds tombstones, and the reader feature "
            f"{segments.TOMBSTONES!r} is not there"
        )


def _check_consistent(manifest: Manifest) -> None:
    """Rules between fields: what one of them says must not contradict another."""
    next_seq = manifest.next_seq
    refs = [page for window in manifest.windows for page in window.pages]
    listed: list[segments.SegmentEntry | segments.PageRef] = [
        *manifest.segments,
        *refs,
        *manifest.window_pages,
    ]
    for part in listed:
        if part.max_seq >= next_seq:
            raise CorruptTable(
                f"manifest {manifest.version}: {part.path} holds sequence number {part.max_seq}, "
                f"but the table's next one is {next_seq}"
            )
    names = [part.path for part in listed]
    if len(set(names)) != len(names):
        raise CorruptTable(f"manifest {manifest.version} refers to a file twice")
    if max(manifest.schema.by_id) >= manifest.next_column_id:
        raise CorruptTable(f"manifest {manifest.version}: next_column_id is in use")
    expected = range(manifest.version, manifest.version - len(manifest.history), -1)
    if [record.version for record in manifest.history] != list(expected) or (
        manifest.history[:1] != (manifest.commit,)
    ):
        raise CorruptTable(
            f"manifest {manifest.version}: its history is not its own commit and those before it"
        )
    if next_seq > INT64_MAX - 1 or manifest.trim_seq > next_seq:
        raise CorruptTable(f"manifest {manifest.version}: the trim point is beyond the tail")
    if manifest.files_floor > manifest.files_version:
        # No file could be new enough, and a writer would try again and again.
        raise CorruptTable(f"manifest {manifest.version}: the files floor is beyond the version")
    _check_keyed(manifest)
    check_lifecycle(manifest)


def _check_keyed(manifest: Manifest) -> None:
    """Whoever does not know the features would return rows that were replaced, or deleted."""
    if (KEYED in manifest.reader_features) != bool(manifest.config.primary_key):
        raise CorruptTable(
            f"manifest {manifest.version}: a primary key and the feature {KEYED!r} go together"
        )
    if segments.TOMBSTONES in manifest.reader_features and not manifest.config.primary_key:
        raise CorruptTable(f"manifest {manifest.version}: tombstones without a primary key")
    for entry in manifest.segments:
        check_tombstones(manifest, entry)
