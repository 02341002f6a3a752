"""What a caller asks of a scan, and what that means for the columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING

from strandline.readers.read_ahead import DEFAULT_MEMORY_BYTES
from strandline.tableformat.arguments import check_count, check_names
from strandline.tableformat.binding import bind
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.expressions import all_of, col
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.hidden_columns import DELETED, HIDDEN_COLUMNS, SEQ_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.tableformat.binding import Bound
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a caller asked for, checked for shape but not yet against a schema."""

    columns: Sequence[str] | None = None
    filter: str | Expression | None = None
    start_seq: int | None = None
    end_seq: int | None = None
    start_ts: int | None = None
    end_ts: int | None = None
    limit: int | None = None
    order_by: str | None = None
    """A column; None: `_seq`, as rows are stored."""
    descending: bool = False
    indexes: bool = True
    """Whether to look into index files; without them a scan gives the same rows."""
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """What rows on their way to the caller may take, as planned."""
    keep_codes: bool = False
    """Whether texts may come as the files hold them, as codes into few different ones."""
    all_rows: bool = False
    """In a keyed table: rows that a newer one of their key has replaced, too."""
    tombstones: bool = False
    """With `all_rows`: deletes by key, too, as rows of which only the key is not null. Whoever asks
    for the column `_deleted` gets them."""

    def __post_init__(self) -> None:
        if self.columns is not None:
            object.__setattr__(self, "columns", check_names("columns", self.columns))
        if not isinstance(self.order_by, (str, NoneType)):
            raise InvalidInput(f"order_by is the name of one column, not {self.order_by!r}")
        for name in ("descending", "indexes", "all_rows"):
            if type(getattr(self, name)) is not bool:
                raise InvalidInput(f"{name} must be True or False, not {getattr(self, name)!r}")
        for name in ("start_seq", "end_seq", "start_ts", "end_ts", "limit", "memory_bytes"):
            check_count(name, getattr(self, name))


def check_shows_deletes(manifest: Manifest, request: Request) -> None:
    """Refuse to show deletes where there are none to show."""
    if manifest.config.primary_key and not request.all_rows:
        raise InvalidInput(
            f"a scan gives no deleted keys, so {DELETED.name!r} would be false in every row; ask "
            "for it with all_rows=True, or by read, follow or changes"
        )


def chosen_columns(manifest: Manifest, names: Sequence[str] | None) -> list[Column]:
    """The columns that rows come with."""
    if names is None:
        return list(manifest.schema.columns)
    hidden = {**HIDDEN_COLUMNS, **({DELETED.name: DELETED} if manifest.config.primary_key else {})}
    chosen = [hidden.get(name) or manifest.schema.column(name) for name in names]
    if len({column.id for column in chosen}) != len(chosen):
        raise InvalidInput("columns names a column twice")
    if not chosen:
        raise InvalidInput("columns is empty; name at least one column, or leave it out")
    return chosen


def names_of(manifest: Manifest, column_ids: set[int]) -> list[str]:
    """Names in the order in which files are read, whatever rows in memory hold besides."""
    columns = (*manifest.schema.columns, *HIDDEN_COLUMNS.values(), DELETED)
    return [column.name for column in columns if column.id in column_ids]


def order_column(manifest: Manifest, request: Request) -> Column | None:
    """The column to sort by; None where rows come in that order anyway."""
    name = request.order_by
    if name is None:
        return HIDDEN_COLUMNS["_seq"] if request.descending else None
    column = HIDDEN_COLUMNS.get(name) or manifest.schema.column(name)
    if column.type.domain is None:
        raise InvalidInput(f"order_by: column {name!r} is nested and has no order")
    return None if column.id == SEQ_ID and not request.descending else column


def whole_filter(
    manifest: Manifest, request: Request, *, floor_ts: int, trim_seq: int
) -> Bound | None:
    """Everything a row must satisfy, as one filter: the request's, and what is still visible."""
    terms = [] if request.filter is None else [filter_from(request.filter)]
    least_seq, least_ts = (
        max(request.start_seq or 0, trim_seq),
        max(request.start_ts or 0, floor_ts),
    )
    if least_seq > 0:
        terms.append(col("_seq") >= least_seq)
    if request.end_seq is not None:
        terms.append(col("_seq") < request.end_seq)
    if least_ts > 0:
        terms.append(col("_ts") >= least_ts)
    if request.end_ts is not None:
        terms.append(col("_ts") <= request.end_ts)
    return bind(all_of(terms), manifest.schema) if terms else None
