"""The documents of a remembered query: what is asked, what is kept, and how far that goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from strandline.tableformat import codec, types
from strandline.tableformat.binding import bind, columns_of
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.remembered_query import RememberedQuery, query_from_json

if TYPE_CHECKING:
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Schema

FORMAT: Final = "strandline-materialization"
FORMAT_VERSION: Final = 1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One version of an alias."""

    version: int
    commit_id: str
    query: RememberedQuery | None
    """None: the alias was forgotten."""
    mark: Mark | None = None
    frames: tuple[dict[str, Any], ...] = ()

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
            "frames": list(self.frames),
        }
        return codec.encode_document(orjson.dumps(document))


def decode(data: bytes, where: str) -> Document:
    """The document of an object's bytes."""
    found = codec.decode_document(data, where)
    try:
        if (found["format"], found["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise CorruptTable(f"{where} is of another format")
        given = found["mark"]
        numbers = ("version", "next_seq", "floor_ts", "trim_seq", "deleted_rows")
        mark = None
        if given is not None:
            counts = {name: int(given[name]) for name in numbers}
            mark = Mark(columns=given["columns"], **counts)
        return Document(
            version=int(found["version"]),
            commit_id=found["commit_id"],
            query=None if found["query"] is None else query_from_json(found["query"]),
            mark=mark,
            frames=tuple(found["frames"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptTable(f"{where} is no description of a remembered query: {error}") from None


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
