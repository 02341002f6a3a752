"""Which shards a filter can match, where it fixes the key that rows are sharded by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.tableformat.binding import Bound, BoundAnd, BoundCompare, BoundIn, BoundOr
from strandline.tableformat.indexes.hashing import literal_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.tableformat.config import Config
    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.values import Value


def shards_left(bound: Bound | None, config: Config) -> frozenset[int] | None:
    """The shards that may hold a matching row; None: all of them."""
    if bound is None or config.shards == 1 or config.shard_by is None:
        return None
    return _shards(bound, config)


def _shards(bound: Bound, config: Config) -> frozenset[int] | None:
    match bound:
        case BoundAnd(parts):
            known = [s for part in parts if (s := _shards(part, config)) is not None]
            return frozenset.intersection(*known) if known else None
        case BoundOr(parts):
            found = [_shards(part, config) for part in parts]
            return None if None in found else frozenset().union(*(s for s in found if s))
        case BoundCompare(column, "=", value) if column.id == config.shard_by:
            return _shards_of([value], column.type, config)
        case BoundIn(column, values, _, False) if column.id == config.shard_by:
            return _shards_of(values, column.type, config)
    return None


def _shards_of(keys: Iterable[Value], kind: ColumnType, config: Config) -> frozenset[int]:
    if config.shard_hash == "mask":
        return frozenset(key & (config.shards - 1) for key in keys if isinstance(key, int))
    return frozenset((literal_hashes(keys, kind) % config.shards).tolist())
