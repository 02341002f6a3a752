"""The documents of a remembered query: what is asked, what is kept, and how far that goes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from strandline.tableformat import codec, types
from strandline.tableformat.binding import bind, columns_of
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.fields import Fields
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.remembered_query import RememberedQuery, query_from_json

if TYPE_CHECKING:
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Schema

FORMAT: Final = "strandline-materialization"
FORMAT_VERSION: Final = 1
_FRAME: Final = re.compile(r"frames/(0|[1-9][0-9]{0,18})-[0-9a-f]{16}\.frame")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a state goes, and what the table was like then."""

    version: int
    next_seq: int
    floor_ts: int
    trim_seq: int
    deleted_rows: int
    columns: dict[str, list[Any]]
    """Columns that the query reads: id and type under the name they had."""


@dataclass(frozen=True, slots=True)
class FrameRef:
    """An object with a part of the state."""

    path: str
    size_bytes: int
    xxh64: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One version of an alias."""

    version: int
    commit_id: str
    query: RememberedQuery | None
    """None: the alias was forgotten."""
    mark: Mark | None = None
    frames: tuple[FrameRef, ...] = ()

    def encode(self) -> bytes:
        mark = self.mark
        document = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "version": str(self.version),
            "commit_id": self.commit_id,
            "query": None if self.query is None else self.query.to_json(),
            "mark": None
            if mark is None
            else {
                "version": str(mark.version),
                "next_seq": str(mark.next_seq),
                "floor_ts": str(mark.floor_ts),
                "trim_seq": str(mark.trim_seq),
                "deleted_rows": str(mark.deleted_rows),
                "columns": mark.columns,
            },
            "frames": [
                {"path": f.path, "size_bytes": str(f.size_bytes), "xxh64": f.xxh64}
                for f in self.frames
            ],
        }
        return codec.encode_document(orjson.dumps(document))


def decode(data: bytes, where: str, version: int) -> Document:
    """The document of the bytes of the object that has the name of this version."""
    fields = Fields(codec.decode_document(data, where), where)
    if (fields.optional("format"), fields.optional("format_version")) != (FORMAT, FORMAT_VERSION):
        raise CorruptTable(f"{where} is of another format")
    if fields.int64("version", least=1) != version:
        raise CorruptTable(f"{where} says that it is version {fields.int64('version')}")
    asked, mark = fields.optional("query"), fields.optional("mark")
    return Document(
        version=version,
        commit_id=fields.identity("commit_id"),
        query=None if asked is None else query_from_json(asked, where),
        mark=None if mark is None else _mark_from(Fields(mark, f"{where}.mark")),
        frames=tuple(_frame_from(Fields(f, f"{where}.frames")) for f in fields.list("frames")),
    )


def _mark_from(fields: Fields) -> Mark:
    numbers = ("version", "next_seq", "floor_ts", "trim_seq", "deleted_rows")
    return Mark(columns=fields.object("columns"), **{name: fields.int64(name) for name in numbers})


def _frame_from(fields: Fields) -> FrameRef:
    return FrameRef(
        fields.text("path"), fields.int64("size_bytes", least=1), fields.checksum("xxh64")
    )


def frame_version(name: str) -> int | None:
    """The number of the document that a frame was made for; None: this is no frame's name."""
    found = _FRAME.fullmatch(name)
    return None if found is None else int(found[1])


def mark_of(query: RememberedQuery, manifest: Manifest) -> Mark:
    """How far a state of this version goes."""
    return Mark(
        version=manifest.version,
        next_seq=manifest.next_seq,
        floor_ts=manifest.floor_ts,
        trim_seq=manifest.trim_seq,
        deleted_rows=manifest.deleted_rows,
        columns=columns_used(query, manifest.schema),
    )


def columns_used(query: RememberedQuery, schema: Schema) -> dict[str, list[Any]]:
    """What the answer depends on, also by its filter: a column may be dropped and come again."""
    names = set(query.reads)
    if query.filter is not None:
        condition = bind(filter_from(query.filter), schema)
        used = columns_of(condition)
        names |= {column.name for number, column in schema.by_id.items() if number in used}
    found = ((name, schema.column(name)) for name in sorted(names))
    return {name: [column.id, types.to_json(column.type)] for name, column in found}
