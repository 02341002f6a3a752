"""What is known of a column's values in one file or in many: enough to skip them, never too much.

Bounds exclude nulls and NaN. A missing bound means "may hold anything". A truncated bound is still
a bound; it only loses the promise that a row with that very value exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat import values
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.like import after_prefix
from strandline.tableformat.types import ColumnType, Domain

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BOUND_LENGTH: Final = 32
"""Characters of text, or bytes, that a bound keeps."""
_LAST_BYTE: Final = 0xFF


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Typed bounds and counts of one column."""

    min: values.Value | None
    max: values.Value | None
    null_count: int | None
    has_nan: bool = False
    exact: bool = True
    """Whether `min` and `max` are values that really occur."""

    def to_json(self, kind: ColumnType) -> dict[str, Any]:
        """As it stands in metadata; what is unknown is left out."""
        out: dict[str, Any] = {}
        if self.min is not None and self.max is not None:
            out["min"] = values.encode(kind, self.min)
            out["max"] = values.encode(kind, self.max)
        if self.null_count is not None:
            out["null_count"] = str(self.null_count)
        if kind.domain is Domain.FLOAT:
            out["has_nan"] = self.has_nan
        if not self.exact:
            out["exact"] = False
        return out


def from_json(kind: ColumnType, value: Any, where: str) -> ColumnStats:
    """Decode one column's stats; a half-given pair of bounds is no pair."""
    if not isinstance(value, dict):
        raise CorruptTable(f"{where}: column stats must be an object")
    low, high, nulls = value.get("min"), value.get("max"), value.get("null_count")
    has_nan, exact = value.get("has_nan", kind.domain is Domain.FLOAT), value.get("exact", True)
    if type(has_nan) is not bool or type(exact) is not bool:
        raise CorruptTable(f"{where}: has_nan and exact must be true or false")
    both = low is not None and high is not None
    return ColumnStats(
        values.decode(kind, low, where) if both else None,
        values.decode(kind, high, where) if both else None,
        None if nulls is None else values.decode_int64(nulls, where),
        has_nan=has_nan,
        exact=exact,
    )


def bounded(
    low: values.Value | None, high: values.Value | None
) -> tuple[values.Value | None, values.Value | None, bool]:
    """Bounds short enough to store, and whether they are still exact."""
    if isinstance(low, str) and isinstance(high, str):
        short_low, short_high = low[:MAX_BOUND_LENGTH], _ceil_text(high)
    elif isinstance(low, bytes) and isinstance(high, bytes):
        short_low, short_high = low[:MAX_BOUND_LENGTH], _ceil_bytes(high)  # type: ignore[assignment]
    else:
        return low, high, True
    if short_high is None:
        return None, None, True
    return short_low, short_high, short_low == low and short_high == high


def _ceil_text(high: str) -> str | None:
    """The least short text above all that start like `high`; None if there is none."""
    return high if len(high) <= MAX_BOUND_LENGTH else after_prefix(high[:MAX_BOUND_LENGTH])


def _ceil_bytes(high: bytes) -> bytes | None:
    if len(high) <= MAX_BOUND_LENGTH:
        return high
    kept = high[:MAX_BOUND_LENGTH].rstrip(bytes([_LAST_BYTE]))
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def merged(parts: Sequence[ColumnStats | None], row_counts: Sequence[int]) -> ColumnStats | None:
    """Stats of many files together. A part without bounds spoils them, unless all of it is null."""
    low: values.Value | None = None
    high: values.Value | None = None
    nulls: int | None = 0
    has_nan, exact, known = False, True, True
    for part, rows in zip(parts, row_counts, strict=True):
        if part is None:
            return None
        nulls = None if nulls is None or part.null_count is None else nulls + part.null_count
        has_nan |= part.has_nan
        exact &= part.exact
        if part.min is not None and part.max is not None:
            # Both sides come from one column, so they are of one kind.
            low = part.min if low is None or part.min < low else low  # type: ignore[operator]
            high = part.max if high is None or part.max > high else high  # type: ignore[operator]
        elif part.null_count != rows:
            known = False
    return ColumnStats(
        low if known else None, high if known else None, nulls, has_nan=has_nan, exact=exact
    )
