"""Where a stream table keeps a user's rows, and what it was told about itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import xxhash

from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.fields import Fields
from strandline.tableformat.manifest import STREAM
from strandline.tableformat.safe_names import decode_name, encode_name

if TYPE_CHECKING:
    from strandline.tableformat.config import Config
    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.windows import Window

DEFAULT_SHARDS: Final = 16
MAX_SHARDS: Final = 1_024
LOG_SUFFIX: Final = ".log"
_CHUNK: Final = re.compile(r"([0-9]{12})-([0-9]{12})")
_NO_IDS: Final = frozenset({"float32", "float64", "list", "struct", "map"})
"""Types whose values do not name a row: NaN has many forms, and nested ones have no plain order."""


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """What makes a stream table out of a table's configuration."""

    row_id: int
    """The column whose value names a row: a later row of the same user and id replaces it."""
    shards: int = DEFAULT_SHARDS

    def to_json(self) -> dict[str, Any]:
        return {"row_id": self.row_id, "shards": self.shards}

    def shard_of(self, user: str) -> int:
        """XXH64 of the name's UTF-8 bytes, modulo the shards."""
        return int(xxhash.xxh64_intdigest(user.encode()) % self.shards)

    def log_path(self, window: Window, user: str) -> str:
        return _log_path(self, window, user)


@lru_cache(maxsize=4096)
def _log_path(layout: StreamLayout, window: Window, user: str) -> str:
    """Producers put to the same few thousand logs again and again."""
    return f"{shard_folder(window, layout.shard_of(user))}{encode_name(user)}{LOG_SUFFIX}"


def shard_folder(window: Window, shard: int) -> str:
    """The folder of one shard's logs."""
    return f"{window.prefix}/shard-{shard}/"


def layout_from_config(config: Config, schema: Schema) -> StreamLayout:
    """The layout that a stream table's configuration holds."""
    given = Fields(config.extra.get(STREAM), "config.stream")
    row_id, shards = given.int32("row_id", least=1), given.int32("shards", least=1)
    column = schema.by_id.get(row_id)
    if column is None or column.type.name in _NO_IDS:
        raise CorruptTable("config.stream.row_id is not a column that can name rows")
    if shards > MAX_SHARDS:
        raise CorruptTable(f"config.stream.shards must be 1 to {MAX_SHARDS}")
    return StreamLayout(row_id, shards)


def make_layout(schema: Schema, row_id: object, shards: object) -> StreamLayout:
    """A layout from what a user writes, or an error that says what is wrong with it."""
    if not isinstance(row_id, str):
        raise InvalidInput("a stream table needs row_id: the name of the column that names rows")
    column: Column = schema.column(row_id)
    if column.type.name in _NO_IDS:
        raise InvalidInput(f"row_id {row_id!r} has type {column.type}, which cannot name rows")
    if type(shards) is not int or not 1 <= shards <= MAX_SHARDS:
        raise InvalidInput(f"shards must be an integer from 1 to {MAX_SHARDS}, not {shards!r}")
    return StreamLayout(column.id, shards)


def user_of_log(path_in_shard: str) -> str | None:
    """Whose log a file below a shard's folder belongs to; None for a file that is no log's."""
    if path_in_shard.endswith(LOG_SUFFIX):
        return decode_name(path_in_shard.removesuffix(LOG_SUFFIX))
    folder, _, name = path_in_shard.rpartition("/")
    if folder.endswith(LOG_SUFFIX) and _CHUNK.fullmatch(name):
        return decode_name(folder.removesuffix(LOG_SUFFIX))
    return None


# --- chunk objects: names that say which chunks are inside ---------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class ChunkSpan:
    """The chunks `first` to `last` of one log, in one object."""

    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.first:012d}-{self.last:012d}"


def parse_chunk_name(name: str) -> ChunkSpan | None:
    """The span an object's name stands for; None for another name."""
    match = _CHUNK.fullmatch(name)
    if match is None or int(match[1]) > int(match[2]):
        return None
    return ChunkSpan(int(match[1]), int(match[2]))


def chunks_to_read(names: list[str]) -> tuple[list[ChunkSpan], list[ChunkSpan]]:
    """Which objects make up the log, in order, and which are covered by a merged one.

    Merging always takes the log's beginning, so the widest object that begins at 0 stands for all
    objects that end where it does or before: their chunks are inside, or came too late.
    """
    spans = sorted(span for span in map(parse_chunk_name, names) if span is not None)
    covered_until = max((span.last for span in spans if span.first == 0), default=-1)
    needed = [s for s in spans if s.last > covered_until or s == ChunkSpan(0, covered_until)]
    return needed, [span for span in spans if span not in needed]
