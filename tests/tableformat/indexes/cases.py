"""Random columns in zones, and the zones that truly hold a wanted row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from strandline.readers.evaluate import evaluate
from strandline.tableformat import types
from strandline.tableformat.binding import Bound, BoundAnd, BoundOr, bind
from strandline.tableformat.expressions import Expression, Not
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.membership import Membership
from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
from strandline.tableformat.schema import Column, schema_from
from tests.filter_cases import SCHEMA, TYPES, leaves, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.contract import Built, ZoneIndex

EXTRA: dict[str, list[Any]] = {
    # Bounds are cut at 32 characters; code points beside the surrogates, which do not exist.
    "name": ["b" * 40, "b" * 40 + "c", "\U0010ffff" * 40, "\ud7ff", "\ue000", "b" * 31 + "é"],
    "blob": [b"\xff" * 40, b"\xfe" + b"\xff" * 40, b"c" * 33],
    "f64": [0.0, -0.0, float("nan")],
    "f32": [0.0, -0.0, float("nan")],
}
ALL_NAMES = sorted(TYPES)
FEW = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
"""For each of 13 column types, and with every kind."""
TIME_UNITS = {"i64": "ms"}
"""So that an integer column gets the kinds that `_ts` has."""


@dataclass(frozen=True)
class Variant:
    """A kind, and how it is built."""

    kind: str
    algorithm: str = ""

    def build(self, column: ColumnZones) -> Built | None:
        kind = KINDS[self.kind]
        if isinstance(kind, Membership):
            return kind.build(column, self.algorithm)
        return kind.build(column)

    def __str__(self) -> str:
        return f"{self.kind} {self.algorithm}".strip()


VARIANTS = [
    *(Variant(kind) for kind in KINDS if "membership" not in kind),
    *(Variant(k, a) for k in ("membership", "zone_membership") for a in ("sbbf", "xor8")),
]


@dataclass(frozen=True)
class Case:
    """A column of a segment, by zones."""

    column: Column
    values: pa.ChunkedArray
    layout: ZoneLayout

    @property
    def zones(self) -> ColumnZones:
        unit = TIME_UNITS.get(self.column.name)
        return ColumnZones(self.values, self.column.type, self.layout, time_unit=unit)


def case_of(kind: str, rows: Sequence[Any], zone_rows: int, cut: int = 0, name: str = "x") -> Case:
    """These values as a column of one or two chunks."""
    column = schema_from({name: kind}).columns[0]
    arrow = types.to_arrow(column.type)
    chunks = [pa.array(part, arrow) for part in (rows[:cut], rows[cut:]) if len(part)]
    return Case(column, pa.chunked_array(chunks, arrow), ZoneLayout(len(rows), zone_rows))


@st.composite
def cases(draw: st.DrawFn, name: str, most_rows: int = 24) -> Case:
    """A column with nulls, in one or two chunks, in zones of a few rows."""
    values = values_of(name)
    if name in EXTRA:
        values = values | st.sampled_from(EXTRA[name])
    rows = draw(st.lists(st.none() | values, min_size=1, max_size=most_rows))
    made = case_of(
        TYPES[name], rows, draw(st.integers(1, 6)), draw(st.integers(0, len(rows))), name
    )
    return Case(SCHEMA.column(name), made.values, made.layout)


@st.composite
def bound_leaves(draw: st.DrawFn, name: str) -> list[Any]:
    """The leaves of some random predicates on this column."""
    found: list[Any] = []
    for _ in range(4):
        expression: Expression = draw(leaves((name,), foreign=True))
        if draw(st.booleans()):
            expression = Not(expression)
        found += leaves_of(bind(expression, SCHEMA))
    return found


def leaves_of(bound: Bound) -> Iterator[Leaf]:
    """What stands under AND and OR."""
    if isinstance(bound, BoundAnd | BoundOr):
        for part in bound.parts:
            yield from leaves_of(part)
    else:
        yield bound


def true_zones(case: Case, leaf: Bound) -> np.ndarray[Any, Any]:
    """Which zones hold a row for which the filter is TRUE, by evaluating every row."""
    table = pa.table({case.column.name: case.values})
    found = evaluate(leaf, table, {case.column.id: case.column.name})
    rows = np.array([value is True for value in found.to_pylist()], np.bool_)
    size = case.layout.zone_rows
    return np.array([rows[i : i + size].any() for i in range(0, len(rows), size)])


def opened(variant: Variant, case: Case) -> ZoneIndex | None:
    """Built, written down, and read back."""
    built = variant.build(case.zones)
    if built is None:
        return None
    return KINDS[variant.kind].open(built.data, built.params, case.layout, case.column.type)


def index_of(variant: Variant, case: Case) -> Any:
    """Likewise, where there must be one."""
    index = opened(variant, case)
    assert index is not None
    return index


def mask_of(variant: Variant, case: Case, make: Callable[[Column], Leaf]) -> list[bool]:
    """What an index says about one leaf."""
    mask = index_of(variant, case).may_match(make(case.column))
    assert mask is not None
    found: list[bool] = mask.tolist()
    return found
