"""Random predicates, in a form of their own: neither Strandline's expressions nor SQL.

Each is rendered twice, by `our_text` in our filter language and by `duck_sql` for DuckDB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat.errors import InvalidFilter
from strandline.tableformat.filter_parser import parse_filter
from tests.readers.differential.values import DAY_US, YEAR_1_US, YEAR_10000_US

if TYPE_CHECKING:
    from random import Random

    from tests.readers.differential.tables import World

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone count from here, too
Literal = bool | int | float | Decimal | str | bytes | date | datetime | None


@dataclass(frozen=True)
class Column:
    """A column of the table, a hidden one, or a field inside a struct."""

    key: str
    kind: pa.DataType
    path: tuple[str, ...] = ()
    is_time: bool = False
    """Whether its integers are milliseconds that also compare with moments: `_ts`, `_window`."""


@dataclass(frozen=True)
class Compare:
    """A column against a value or another column; `<=>` takes NULL as a value."""

    left: Column
    operator: str
    right: Literal | Column


@dataclass(frozen=True)
class Between:
    """A column between two values, both included."""

    column: Column
    low: Literal
    high: Literal
    negated: bool


@dataclass(frozen=True)
class In:
    """A column against a list."""

    column: Column
    values: tuple[Literal, ...]
    negated: bool


@dataclass(frozen=True)
class IsNull:
    """IS NULL, or IS NOT NULL."""

    column: Column
    negated: bool


@dataclass(frozen=True)
class Like:
    """A text against a pattern."""

    column: Column
    pattern: str
    """`%` and `_` are wildcards, a backslash takes the next one of them literally."""
    negated: bool


@dataclass(frozen=True)
class Bare:
    """A bool column on its own, or a constant."""

    what: Column | bool | None


@dataclass(frozen=True)
class Not:
    """The opposite; NULL stays NULL."""

    inner: Predicate


@dataclass(frozen=True)
class Joined:
    """Several predicates, of which all or any must hold."""

    word: str
    """AND or OR."""
    parts: tuple[Predicate, ...]


Predicate = Compare | Between | In | IsNull | Like | Bare | Not | Joined


def _knows_nested_fields() -> bool:
    try:
        parse_filter("s.x = 1")
    except InvalidFilter:
        return False
    return True


NESTED_FIELDS = _knows_nested_fields()


class Predicates:
    """Predicates over one table; values of its rows are the usual literals."""

    def __init__(self, world: World, random: Random) -> None:
        self.random = random
        self.held: dict[Column, pa.Array] = {}
        self.pools: dict[Column, pa.Array] = {}
        for column in world.columns:
            held = world.rows.column(column.key).combine_chunks()
            self._offer(Column(column.key, column.kind), held, column.pool)
        self.visible = list(self.held)
        for name in ("_seq", "_ts", "_window"):
            hidden = Column(name, pa.int64(), is_time=name != "_seq")
            self.held[hidden] = self.pools[hidden] = world.rows.column(name).combine_chunks()
        self.columns = list(self.held)
        self.row = 0

    def _offer(self, column: Column, held: pa.Array, pool: pa.Array) -> None:
        self.held[column], self.pools[column] = held, pool.drop_null()
        if NESTED_FIELDS and pa.types.is_struct(column.kind):
            for inner in column.kind:
                field = Column(column.key, inner.type, (*column.path, inner.name))
                self._offer(field, *(pc.struct_field(a, inner.name) for a in (held, pool)))

    def draw(self) -> Predicate:
        """One predicate over a few columns and mostly about one row, so that its parts meet."""
        random = self.random
        self.row = random.randrange(len(self.held[self.columns[0]]))
        offered = self.visible if random.random() < 0.7 else self.columns
        few = random.sample(offered, min(len(offered), random.randint(1, 3)))
        return self._any(few, depth=random.choice([0, 0, 0, 1, 1, 2, 3]))

    def _any(self, columns: list[Column], depth: int) -> Predicate:
        random = self.random
        if depth == 0:
            return self._leaf(random.choice(columns))
        if random.random() < 0.3:
            return Not(self._any(columns, depth - 1))
        parts = [self._any(columns, depth - 1) for _ in range(random.choice([2, 2, 3]))]
        return Joined(random.choice(["AND", "OR"]), tuple(parts))

    # --- leaves ---

    def _leaf(self, column: Column) -> Predicate:
        random = self.random
        negated = random.random() < 0.3
        chance = random.random()
        if chance < 0.03:
            return Bare(random.choice([True, False, None]))
        if chance < 0.1 or pa.types.is_nested(column.kind):
            return IsNull(column, negated)
        if pa.types.is_boolean(column.kind) and chance < 0.3:
            return Bare(column)
        if pa.types.is_string(column.kind) and chance < 0.4:
            return Like(column, self._pattern(column), negated)
        if chance < 0.5:
            count = random.choice([1, 2, 3, 3, 5, 40]) if random.random() < 0.97 else 0
            return In(column, tuple(self._literal(column) for _ in range(count)), negated)
        if chance < 0.6:
            return Between(column, *self._ends(column), negated)
        others = [c for c in self.columns if comparable(c, column)]
        if chance < 0.67:
            return Compare(column, random.choice(OPERATORS), random.choice(others))
        operator = "=" if random.random() < 0.3 else random.choice(OPERATORS)
        return Compare(column, operator, self._literal(column))

    def _ends(self, column: Column) -> tuple[Literal, Literal]:
        """Two literals, mostly the lesser one first."""
        ends: list[Any] = [self._literal(column), self._literal(column)]
        if type(ends[0]) is type(ends[1]) and ends[0] is not None and self.random.random() < 0.9:
            ends.sort()
        return ends[0], ends[1]

    def _literal(self, column: Column) -> Literal:
        """A value of the column; one next to it; or one that no value of the type equals."""
        random = self.random
        chance = random.random()
        if chance < 0.02:
            return None
        if chance < 0.17:
            return self._foreign(column)
        value = self._held(column)
        return self._beside(value) if chance < 0.45 else value

    def _held(self, column: Column) -> Literal:
        pool, kind = self.pools[column], column.kind
        value = self.held[column][self.row]
        if not value.is_valid or self.random.random() < 0.4:
            if not len(pool):
                return self._foreign(column)
            value = pool[self.random.randrange(len(pool))]
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            return value.as_py()
        if pa.types.is_date(kind):
            micros = value.cast(pa.int32()).as_py() * DAY_US
        else:
            micros = value.cast(pa.int64()).as_py()
        # Far times cannot be named; the nearest that can is as good.
        micros = min(max(micros, YEAR_1_US), YEAR_10000_US - DAY_US)
        moment = EPOCH + timedelta(microseconds=micros)
        if pa.types.is_date(kind):
            return moment.date()
        return moment.replace(tzinfo=UTC) if kind.tz else moment

    def _beside(self, value: Literal) -> Literal:
        random = self.random
        match value:
            case bool() | None:
                return value
            case int():
                return value + random.choice([-1, 1])
            case float():
                return math.nextafter(value, random.choice([-math.inf, math.inf]))
            case Decimal():
                places = -value.as_tuple().exponent + random.choice([0, 1])
                shifted = int(value.scaleb(places, _CONTEXT)) + random.choice([-1, 1])
                return Decimal(shifted).scaleb(-places, _CONTEXT)
            case str() | bytes():
                more: Any = "\0" if isinstance(value, str) else b"\0"
                return random.choice([value[:-1], value + more, value * 2, value[:1]])
            case datetime():
                step = timedelta(microseconds=random.choice([1, 1000, 10**9]))
                return value + step if value.year < 5000 else value - step
            case date():
                step = timedelta(days=1)
                return value + step if value.year < 5000 else value - step
        raise AssertionError(value)

    def _foreign(self, column: Column) -> Literal:
        """A literal of another type than the column's, or far outside of it."""
        random, kind = self.random, column.kind
        if pa.types.is_boolean(kind):
            return random.choice([True, False])
        if pa.types.is_string(kind):
            return random.choice(["", "zz", "\U0010ffff" * 3, "NaN"])
        if pa.types.is_binary(kind):
            return random.choice([b"", b"\xff" * 50, b"zz"])
        naive = random.choice([datetime(1, 1, 1), datetime(2024, 1, 31, 12, 30, 0, 1), EPOCH])  # noqa: DTZ001
        if pa.types.is_date(kind) or kind == pa.timestamp("us"):
            return random.choice([naive, naive.date()])
        if pa.types.is_timestamp(kind) or (column.is_time and random.random() < 0.5):
            return naive.replace(tzinfo=UTC)
        return random.choice(_NUMBERS)

    def _pattern(self, column: Column) -> str:
        random = self.random
        text = self._held(column)
        assert isinstance(text, str)
        cut = random.randint(0, len(text))
        begin, end = _escaped(text[:cut]), _escaped(text[cut:])
        prefixes = [
            begin + "%",
            begin + "_",
            begin + "%" + end,
            begin + "_" + _escaped(text[cut + 1 :]),
        ]
        others = ["%" + end, "%" + end + "%", "%_" + end + "%", begin + end, "%", "", "_%"]
        return random.choice(random.choice([prefixes, others]))


_CONTEXT = Context(prec=500)
_NUMBERS: list[Literal] = [
    0, 1, 2, -1, 1_000, -1_000, 2**31, 2**53 + 1, 2**70, -(2**70), 10**38, -(10**38), 10**400,
    0.1, 1.5, -0.5, -0.0, 5e-324, 1e300, 2.0**63, math.nan, math.inf, -math.inf,
    Decimal("0.1"), Decimal("1.5"), Decimal("0.105"), Decimal("-1e-30"), Decimal("1E+400"),
    Decimal("9" * 36), Decimal("9" * 38),
]  # fmt: skip


def comparable(one: Column, other: Column) -> bool:
    """Whether our language compares the two columns: numbers of one sort, or the same type."""
    a, b = one.kind, other.kind
    if pa.types.is_nested(a):
        return False
    for sort in (pa.types.is_integer, pa.types.is_floating):
        if sort(a) or sort(b):
            return bool(sort(a) and sort(b))
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        return bool(a.scale == b.scale)
    return bool(a == b)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
