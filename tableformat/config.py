"""What a table is told once: its time column, how rows get their time, how long they live."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.fields import Fields
from strandline.tableformat.timestamps import MODES, ORDERS
from strandline.tableformat.windows import parse_duration, window_ms_for_ttl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.tableformat.schema import Column, Schema

TIME_TYPES: Final = ("int64", "timestamp", "timestamptz")
MAX_STATS_COLUMNS: Final = 32
MIN_ROW_GROUP, MAX_ROW_GROUP = 1_024, 16_777_216
DEFAULT_ROW_GROUP: Final = 65_536
DEFAULT_WRITER_RETENTION_MS: Final = 30 * 24 * 3_600_000


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
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
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
        extra={key: value[key] for key in value if key not in _FIELDS},
    )


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
) -> Config:
    """A configuration from what a user writes, or an error that says what is wrong with it."""
    _check_choice("timestamping", timestamping, MODES)
    _check_choice("order", order, ORDERS)
    if type(uncapped) is not bool:
        raise InvalidInput(f"uncapped must be True or False, not {uncapped!r}")
    if type(row_group_rows) is not int or not MIN_ROW_GROUP <= row_group_rows <= MAX_ROW_GROUP:
        raise InvalidInput(
            f"row_group_rows must be an integer from {MIN_ROW_GROUP} to {MAX_ROW_GROUP}, "
            f"not {row_group_rows!r}"
        )
    ttl_ms = None if ttl is None else parse_duration(ttl)
    time = None if time_column is None else _time_column(schema, time_column)
    if time is None and timestamping == "client-require":
        raise InvalidInput("timestamping='client-require' needs a time_column")
    return Config(
        time_column=None if time is None else time.id,
        ttl_ms=ttl_ms,
        window_ms=window_ms_for_ttl(ttl_ms),
        timestamping=timestamping,
        uncapped=uncapped,
        order=order,
        stats_columns=_stats_columns(schema, time, stats_columns),
        row_group_rows=row_group_rows,
        writer_retention_ms=parse_duration(writer_retention),
    )


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
    schema: Schema, time: Column | None, names: Iterable[str] | None
) -> tuple[int, ...]:
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
    ordered = dict.fromkeys(column.id for column in ([time] if time else []) + chosen)
    return tuple(ordered)[:MAX_STATS_COLUMNS]
