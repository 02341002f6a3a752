"""What a table is told once: its time column, how rows get their time, how long they live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat import sharding
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.fields import Fields
from strandline.tableformat.indexes import policy
from strandline.tableformat.indexes.reference import (
    KindsByColumn,
    kinds_from_json,
    kinds_to_json,
)
from strandline.tableformat.timestamps import MODES, ORDERS, TS_LIMIT_MS
from strandline.tableformat.windows import parse_duration, window_ms_for_ttl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.tableformat.schema import Column, Schema

TIME_TYPES: Final = ("int64", "timestamp", "timestamptz")
MAX_STATS_COLUMNS: Final = 32
MIN_ROW_GROUP, MAX_ROW_GROUP = 1_024, 16_777_216
DEFAULT_ROW_GROUP: Final = 65_536
DEFAULT_WRITER_RETENTION_MS: Final = 30 * 24 * 3_600_000
DEFAULT_ZONE: Final = 2_048
DEFAULT_HISTORY_MS: Final = 7 * 24 * 3_600_000
MAX_SHARDS: Final = 1_024
ON_LATE: Final = ("drop", "error")
USER_SCOPE: Final = "user"
SCOPES: Final = ("shared", USER_SCOPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A table's configuration. Columns are named by id, so that a rename changes nothing."""

    time_column: int | None = None
    """None: rows have the time of their arrival."""
    ttl_ms: int | None = None
    window_ms: int = window_ms_for_ttl(None)
    """Length of new windows; existing windows keep the length their name carries."""
    timestamping: str = MODES[0]
    uncapped: bool = False
    """False: a row's `_ts` is never later than the writer's clock. The column stays as given."""
    order: str = ORDERS[0]
    stats_columns: tuple[int, ...] = ()
    """Columns with stats in the manifest, at most 32. Others have stats in Parquet footers only."""
    row_group_rows: int = DEFAULT_ROW_GROUP
    writer_retention_ms: int = DEFAULT_WRITER_RETENTION_MS
    shard_by: int | None = None
    """The key: rows with the same one are stored in one shard, and lateness is measured by it."""
    shards: int = 1
    shard_hash: str = sharding.HASHES[0]
    sort_by: tuple[int, ...] = ()
    """How rows are sorted inside a segment; `_seq` stays that of the append."""
    jitter_ms: int | None = None
    """How far below its key's newest row a row may be and still be stored with the others.

    None: late rows are counted and not stored apart. Producers whose clocks differ a little would
    otherwise write two files per append.
    """
    on_late: str = ON_LATE[0]
    """What becomes of rows below the retention floor: dropped and counted, or an error."""
    zone_rows: int = DEFAULT_ZONE
    """Rows of a zone, the granule of indexes; a row group is a whole number of zones."""
    zone_pages: bool = False
    """Whether Parquet data pages are zones: finer reads, for a fifth more work in writing."""
    index_policy: str = policy.POLICIES[0]
    """Who plans the indexes of columns that `indexes` does not name; `none`: they have none."""
    indexes: KindsByColumn = field(default_factory=dict)
    """Column id → the kinds of index it has, whatever the policy would plan."""
    history_ms: int | None = DEFAULT_HISTORY_MS
    """How long maintenance keeps versions that are no longer the newest; None: for ever."""
    delete_on_empty_ms: int = 0
    """After how long without rows maintenance drops the table; 0: never."""
    scope: str = SCOPES[0]
    """`shared`: one chain of versions. `user`: one for each user, next to the table's own."""
    primary_key: tuple[int, ...] = ()
    """The columns by which the newest row wins; empty: every row counts."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def protected_ids(self) -> dict[int, str]:
        """Columns this configuration stands on, each with the reason why it has to stay."""
        protected = dict.fromkeys(self.sort_by, "the table's rows are sorted by it")
        protected |= dict.fromkeys(self.primary_key, "it is part of the table's primary key")
        if self.shard_by is not None:
            protected[self.shard_by] = "it is the table's shard key"
        if self.time_column is not None:
            protected[self.time_column] = "it is the table's time column"
        return protected

    def to_json(self) -> dict[str, Any]:
        layout = {
            "shard_by": self.shard_by,
            "shards": self.shards,
            "shard_hash": self.shard_hash,
            "sort_by": list(self.sort_by),
            "jitter_ms": None if self.jitter_ms is None else str(self.jitter_ms),
            "on_late": self.on_late,
            "zone_rows": self.zone_rows,
            "zone_pages": self.zone_pages,
            "index_policy": self.index_policy,
            "indexes": kinds_to_json(self.indexes),
            "history_ms": None if self.history_ms is None else str(self.history_ms),
            "delete_on_empty_ms": str(self.delete_on_empty_ms),
            "scope": self.scope,
            "primary_key": list(self.primary_key),
        }
        return {
            **self.extra,
            "time_column": self.time_column,
            "ttl_ms": None if self.ttl_ms is None else str(self.ttl_ms),
            "window_ms": str(self.window_ms),
            "timestamping": self.timestamping,
            "uncapped": self.uncapped,
            "order": self.order,
            "stats_columns": list(self.stats_columns),
            "row_group_rows": self.row_group_rows,
            "writer_retention_ms": str(self.writer_retention_ms),
            # Only what was chosen: tables without these read as they always did.
            **{key: value for key, value in layout.items() if value != _DEFAULTS[key]},
        }


_DEFAULTS: Final[Mapping[str, Any]] = {
    "shard_by": None,
    "shards": 1,
    "shard_hash": sharding.HASHES[0],
    "sort_by": [],
    "jitter_ms": None,
    "on_late": ON_LATE[0],
    "zone_rows": DEFAULT_ZONE,
    "zone_pages": False,
    "index_policy": policy.POLICIES[0],
    "indexes": {},
    "history_ms": str(DEFAULT_HISTORY_MS),
    "delete_on_empty_ms": "0",
    "scope": SCOPES[0],
    "primary_key": [],
}
_FIELDS: Final = frozenset(f.name for f in fields(Config)) - {"extra"}


def from_json(value: Any, schema: Schema) -> Config:
    """Decode and check a configuration against the schema it speaks of."""
    given = Fields(value, "config")
    time_column, ttl = given.optional("time_column"), given.optional("ttl_ms")
    if time_column is not None:
        column = schema.by_id.get(time_column) if type(time_column) is int else None
        if column is None or column.type.name not in TIME_TYPES:
            raise CorruptTable("config.time_column is not a time column of the schema")
    stats_columns = given.list("stats_columns")
    if any(type(i) is not int for i in stats_columns):
        raise CorruptTable("config.stats_columns must be column ids")
    return Config(
        time_column=time_column,
        ttl_ms=None if ttl is None else given.int64("ttl_ms", least=1),
        window_ms=given.int64("window_ms", least=1),
        timestamping=given.choice("timestamping", MODES),
        uncapped=given.flag("uncapped"),
        order=given.choice("order", ORDERS),
        stats_columns=tuple(stats_columns),
        row_group_rows=given.int32("row_group_rows", least=1),
        writer_retention_ms=given.int64("writer_retention_ms"),
        **_layout_from_json(Fields({**_DEFAULTS, **value}, "config"), schema),
        primary_key=_primary_key_from_json(Fields({**_DEFAULTS, **value}, "config"), schema),
        extra={key: value[key] for key in value if key not in _FIELDS},
    )


def _layout_from_json(given: Fields, schema: Schema) -> dict[str, Any]:
    """How rows are spread over files; a writer must understand all of it."""
    key, shards, sort_by = given.optional("shard_by"), given.int32("shards", least=1), []
    shard_hash = given.choice("shard_hash", sharding.HASHES)
    for column_id in given.list("sort_by"):
        column = schema.by_id.get(column_id) if type(column_id) is int else None
        if column is None or column.type.is_nested:
            raise CorruptTable("config.sort_by must be ids of columns that are not nested")
        sort_by.append(column_id)
    if key is not None:
        column = schema.by_id.get(key) if type(key) is int else None
        if column is None or sharding.unfit(column.type, shard_hash, shards) is not None:
            raise CorruptTable("config.shard_by is not a column that can be sharded by")
    if shards > MAX_SHARDS or (shards > 1 and key is None):
        raise CorruptTable(f"config.shards must be 1 to {MAX_SHARDS}, and 1 without shard_by")
    return {
        "shard_by": key,
        "shards": shards,
        "shard_hash": shard_hash,
        "sort_by": tuple(sort_by),
        "jitter_ms": None if given.optional("jitter_ms") is None else given.int64("jitter_ms"),
        "on_late": given.choice("on_late", ON_LATE),
        "zone_rows": given.int32("zone_rows", least=1),
        "zone_pages": given.flag("zone_pages"),
        "index_policy": given.choice("index_policy", policy.POLICIES),
        "indexes": kinds_from_json(given.object("indexes"), "config.indexes"),
        "history_ms": None if given.optional("history_ms") is None else given.int64("history_ms"),
        "delete_on_empty_ms": given.int64("delete_on_empty_ms"),
        "scope": given.choice("scope", SCOPES),
    }


def _primary_key_from_json(given: Fields, schema: Schema) -> tuple[int, ...]:
    """What decides which rows count; a reader must understand all of it."""
    ids = given.list("primary_key")
    for column_id in ids:
        column = schema.by_id.get(column_id) if type(column_id) is int else None
        if column is None or column.nullable or _no_key(column) is not None:
            raise CorruptTable(
                "config.primary_key must be ids of columns without nulls that can be a key"
            )
    if len(set(ids)) != len(ids):
        raise CorruptTable("config.primary_key names a column twice")
    return tuple(ids)


def make_config(
    schema: Schema,
    *,
    time_column: str | None,
    ttl: object = None,
    timestamping: str = MODES[0],
    uncapped: bool = False,
    order: str = ORDERS[0],
    stats_columns: Iterable[str] | None = None,
    row_group_rows: int = DEFAULT_ROW_GROUP,
    writer_retention: object = "30d",
    shard_by: str | None = None,
    shards: int = 1,
    shard_hash: str = sharding.HASHES[0],
    sort_by: Iterable[str] = (),
    jitter_ms: int | None = None,
    on_late: str = ON_LATE[0],
    zone_rows: int | None = None,
    zone_pages: bool = False,
    indexes: Mapping[str, Iterable[str]] | bool = True,
    scope: str = SCOPES[0],
    primary_key: str | Sequence[str] | None = None,
) -> Config:
    """A configuration from what a user writes, or an error that says what is wrong with it."""
    _check_choice("timestamping", timestamping, MODES)
    _check_choice("order", order, ORDERS)
    _check_choice("on_late", on_late, ON_LATE)
    _check_choice("scope", scope, SCOPES)
    _check_flag("uncapped", uncapped)
    _check_flag("zone_pages", zone_pages)
    _check_count("row_group_rows", row_group_rows, MIN_ROW_GROUP, MAX_ROW_GROUP)
    if jitter_ms is not None:
        _check_count("jitter_ms", jitter_ms, 0, TS_LIMIT_MS)
    ttl_ms = None if ttl is None else parse_duration(ttl)
    time = None if time_column is None else _time_column(schema, time_column)
    key = _primary_key(schema, primary_key)
    if time is None and timestamping == "client-require":
        raise InvalidInput("timestamping='client-require' needs a time_column")
    return Config(
        time_column=None if time is None else time.id,
        ttl_ms=ttl_ms,
        window_ms=window_ms_for_ttl(ttl_ms),
        timestamping=timestamping,
        uncapped=uncapped,
        order=order,
        stats_columns=_stats_columns(schema, ([time] if time else []) + key, stats_columns),
        row_group_rows=row_group_rows,
        writer_retention_ms=parse_duration(writer_retention),
        shard_by=_shard_key(schema, shard_by, shards, shard_hash),
        shards=shards,
        shard_hash=shard_hash,
        sort_by=_sort_columns(schema, sort_by),
        jitter_ms=jitter_ms,
        on_late=on_late,
        zone_rows=_zone_rows(zone_rows, row_group_rows),
        zone_pages=zone_pages,
        index_policy=policy.POLICIES[indexes is False],
        indexes=_indexes(schema, time, indexes),
        scope=scope,
        primary_key=tuple(column.id for column in key),
    )


def _indexes(schema: Schema, time: Column | None, given: object) -> KindsByColumn:
    if isinstance(given, bool):
        return {}
    if not isinstance(given, Mapping) or any(isinstance(kinds, str) for kinds in given.values()):
        raise InvalidInput(
            "indexes maps column names to lists of index kinds, such as {'user': ['postings']}; "
            "False is for no indexes at all"
        )
    chosen: KindsByColumn = {}
    for name, kinds in given.items():
        column = schema.column(name)
        chosen[column.id] = tuple(dict.fromkeys(kinds))
        for kind in chosen[column.id]:
            reason = policy.unfit(kind, column.type, is_time=column == time)
            if reason is not None:
                raise InvalidInput(f"indexes: column {name!r} of type {column.type}: {reason}")
    return chosen


def _no_key(column: Column) -> str | None:
    """Why a column cannot be part of a key: whose values have canonical bytes can be told apart."""
    return sharding.unfit(column.type, "xxh64", 1)


def _primary_key(schema: Schema, given: object) -> list[Column]:
    names = [given] if isinstance(given, str) else () if given is None else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"primary_key is a column name or a list of them, not {given!r}")
    columns = [schema.column(name) for name in names]
    for column in columns:
        reason = _no_key(column)
        if reason is not None:
            raise InvalidInput(f"primary_key {column.name!r}: {reason}")
    if len(set(names)) != len(names):
        raise InvalidInput("primary_key names a column twice")
    return columns


def _check_flag(name: str, value: object) -> None:
    if type(value) is not bool:
        raise InvalidInput(f"{name} must be True or False, not {value!r}")


def _check_count(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(f"{name} must be an integer from {least} to {most}, not {value!r}")


def _shard_key(schema: Schema, name: str | None, shards: int, shard_hash: str) -> int | None:
    _check_count("shards", shards, 1, MAX_SHARDS)
    _check_choice("shard_hash", shard_hash, sharding.HASHES)
    if name is None:
        if shards > 1:
            raise InvalidInput(f"shards={shards} needs shard_by: a column whose value decides")
        return None
    column = schema.column(name)
    reason = sharding.unfit(column.type, shard_hash, shards)
    if reason is not None:
        raise InvalidInput(f"shard_by {name!r}: {reason}")
    return column.id


def _sort_columns(schema: Schema, names: Iterable[str]) -> tuple[int, ...]:
    if isinstance(names, str):
        raise InvalidInput("sort_by is a list of column names, not one string")
    columns = [schema.column(name) for name in names]
    for column in columns:
        if column.type.is_nested:
            raise InvalidInput(f"sort_by: {column.name!r} is nested and has no order")
    ids = tuple(column.id for column in columns)
    if len(set(ids)) != len(ids):
        raise InvalidInput("sort_by names a column twice")
    return ids


def _zone_rows(given: int | None, row_group_rows: int) -> int:
    rows = min(DEFAULT_ZONE, row_group_rows) if given is None else given
    _check_count("zone_rows", rows, 1, row_group_rows)
    if row_group_rows % rows:
        raise InvalidInput(
            f"row_group_rows={row_group_rows} is not a whole number of zones of {rows} rows; "
            "choose zone_rows and row_group_rows so that one divides the other"
        )
    return rows


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def _time_column(schema: Schema, name: str) -> Column:
    column = schema.column(name)
    if column.type.name not in TIME_TYPES:
        raise InvalidInput(
            f"time_column {name!r} has type {column.type}; it must be a timestamp, or int64 "
            "milliseconds since 1970"
        )
    return column


def _stats_columns(
    schema: Schema, first: list[Column], names: Iterable[str] | None
) -> tuple[int, ...]:
    """Columns of `first` have stats in any case: scans ask for times and keys most often."""
    if names is None:
        chosen = [column for column in schema.columns if column.type.domain is not None]
    else:
        if isinstance(names, str):
            raise InvalidInput("stats_columns is a list of column names, not one string")
        chosen = [schema.column(name) for name in names]
        for column in chosen:
            if column.type.domain is None:
                raise InvalidInput(f"stats_columns: {column.name!r} is nested and has no bounds")
        if len(chosen) > MAX_STATS_COLUMNS:
            raise InvalidInput(f"stats_columns: at most {MAX_STATS_COLUMNS}, not {len(chosen)}")
    ordered = dict.fromkeys(column.id for column in first + chosen)
    return tuple(ordered)[:MAX_STATS_COLUMNS]
