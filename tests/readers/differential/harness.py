"""One seed, one case: a random table, random filters, and the same answer from us and from DuckDB.

    python -m tests.readers.differential.harness 4711

repeats the case of a seed and prints what it does.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from strandline.api import open_in
from strandline.readers import index_reader, scan, split_reader
from strandline.tableformat.errors import StrandlineError
from tests.readers.differential import damage, tables
from tests.readers.differential.duck_sql import Peer, sql_of
from tests.readers.differential.our_text import OurText
from tests.readers.differential.predicates import Predicates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.table import Table
    from tests.readers.differential.tables import World

MODES = ("on", "off", "missing", "some", "corrupt", "data")
"""With indexes; without looking at them; with all, some, or none of them intact; and with a
damaged data file, where an error is the other right answer."""


class Difference(AssertionError):
    """Strandline and DuckDB do not agree, or Strandline gave up on a sound table."""


@dataclass(frozen=True)
class Question:
    """One filter with everything else that a scan was asked, and the right answer."""

    text: str
    sql: str
    request: dict[str, Any]
    rows: tuple[int, ...]
    """The `_seq` of the rows that DuckDB found."""


@cache
def _peer() -> Peer:
    return Peer()


def run(
    seed: int,
    filters: int = 20,
    modes: Sequence[str] = MODES,
    kinds: Sequence[pa.DataType] = (),
    *,
    in_turn: bool = False,
) -> int:
    """Build the seed's table, ask it, compare; give the number of answers compared.

    `in_turn`: the first mode with every filter, of the others one with each.
    """
    world = tables.build(seed, kinds)
    objects = damage.objects_of(world.storage)
    random = Random(seed + 1)
    limits = _small_limits(random)
    copies = {"on": world.storage, "off": world.storage}
    for mode in modes:
        if mode in damage.COPIES and (mode == "data" or damage.index_files(objects)):
            copies[mode] = damage.copy_of(damage.COPIES[mode](objects, random))
    for storage in copies.values():
        storage.is_local = world.storage.is_local
    handles = {mode: open_in(copies[mode]) for mode in modes if mode in copies}
    if not handles:  # Only damaged indexes were asked for, and this table has none.
        return 0
    first, *others = handles
    compared = 0
    try:
        for number, question in enumerate(questions_of(world, random, filters)):
            chosen = [first, others[number % len(others)]] if in_turn else [first, *others]
            for mode in chosen:
                with _reading(limits):
                    _compare(world, question, handles[mode], mode)
            compared += len(chosen)
    finally:
        for storage in copies.values():
            damage.discard(storage)
    return compared


def _small_limits(random: Random) -> dict[str, int]:
    """Limits by which small files are read as large ones are: in ranges, in steps, in units."""
    small = {"WHOLE_FILE_BYTES": 0, "ONE_STEP_BYTES": 0, "_UNITS_IN_BUDGET": 2**14}
    small["FIRST_READ_BYTES"] = 0
    return {name: value for name, value in small.items() if random.random() < 0.5}


_PLACES = {"_UNITS_IN_BUDGET": scan, "FIRST_READ_BYTES": index_reader}


@contextmanager
def _reading(limits: dict[str, int]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(_PLACES.get(name, split_reader), name, value)
        yield


def questions_of(world: World, random: Random, count: int) -> Iterator[Question]:
    """Random questions, each answered by DuckDB."""
    peer = _peer()
    peer.load(world.rows)
    predicates = Predicates(world, random)
    ours = OurText({c.key: c.name for c in world.columns}, random)
    for _ in range(count):
        predicate = predicates.draw()
        request = _request(world, random)
        where = " AND ".join([f"({sql_of(predicate)})", *_limits_in_sql(request)])
        found = peer.numbers(where, _order_in_sql(world, request), request.get("limit"))
        yield Question(ours.of(predicate), where, request, found)


def _request(world: World, random: Random) -> dict[str, Any]:
    """Columns in any order, mostly with `_seq`; now and then a range, an order or a limit, too."""
    names = [column.name for column in world.columns]
    columns = random.sample(names, random.randint(1, min(3, len(names))))
    columns += [name for name in tables.HIDDEN if random.random() < 0.3]
    if random.random() < 0.7 and "_seq" not in columns:
        columns.append("_seq")
    request: dict[str, Any] = {"columns": columns}
    total = world.rows.num_rows
    if random.random() < 0.05:
        first = random.randrange(total)
        request |= {"start_seq": first, "end_seq": random.randint(first, total + 2)}
    if random.random() < 0.05:
        one, other = (world.rows.column("_ts")[random.randrange(total)].as_py() for _ in range(2))
        request |= {"start_ts": min(one, other), "end_ts": max(one, other)}
    if random.random() < 0.15:
        plain = [c.name for c in world.columns if not pa.types.is_nested(c.kind)]
        request["order_by"] = random.choice([*plain, *plain, *tables.HIDDEN])
        request["descending"] = random.random() < 0.5
    if random.random() < (0.7 if "order_by" in request else 0.1):
        request["limit"] = random.choice([1, 10, 2_000]) if random.random() < 0.9 else 0
    return request


def _order_in_sql(world: World, request: dict[str, Any]) -> str:
    """Equal values follow each other by `_seq`, in the same direction; nulls are last in both."""
    keys = {column.name: column.key for column in world.columns}
    name = request.get("order_by", "_seq")
    direction = "DESC" if request.get("descending") else "ASC"
    return f"{keys.get(name, name)} {direction} NULLS LAST, _seq {direction}"


def _limits_in_sql(request: dict[str, Any]) -> list[str]:
    signs = {"start_seq": "_seq >=", "end_seq": "_seq <", "start_ts": "_ts >=", "end_ts": "_ts <="}
    return [f"{sign} {request[name]}" for name, sign in signs.items() if name in request]


def _compare(world: World, question: Question, table: Table, mode: str) -> None:
    scan = table.scan(filter=question.text, **question.request, indexes=mode != "off")
    if world.seed % 3 == 0:
        # A row group at a time, and files whose numbers overlap side by side.
        scan = scan.changed(memory_bytes=1)
    try:
        found = scan.to_arrow()
        counted = scan.count() if len(question.rows) % 4 == 1 else found.num_rows
    except StrandlineError as error:
        if mode == "data":
            return
        raise Difference(_told(world, question, mode, f"gave an error: {error}")) from error
    except Exception as error:
        raise Difference(_told(world, question, mode, f"failed: {error!r}")) from error
    by_name = world.rows.rename_columns({column.key: column.name for column in world.columns})
    columns = question.request["columns"]
    expected = by_name.select(columns).take(pa.array(question.rows, pa.int64()))
    schema = pa.schema([world.schema.field(name) for name in columns])
    if found.schema != schema:
        raise Difference(_told(world, question, mode, f"has the schema {found.schema}"))
    if counted != found.num_rows:
        what = f"gave {found.num_rows} rows and counts {counted}"
        raise Difference(_told(world, question, mode, what))
    if found.num_rows != expected.num_rows:
        what = f"gave {found.num_rows} rows, DuckDB {expected.num_rows}"
        raise Difference(_told(world, question, mode, what + _numbers(found, question)))
    for name in columns:
        if not same(found.column(name), expected.column(name)):
            what = f"gave other values of {name!r}"
            raise Difference(_told(world, question, mode, what + _numbers(found, question)))


def _numbers(found: pa.Table, question: Question) -> str:
    if "_seq" not in found.column_names:
        return ""
    ours, theirs = set(found.column("_seq").to_pylist()), set(question.rows)
    return f"; missing {sorted(theirs - ours)[:5]}, too many {sorted(ours - theirs)[:5]}"


def _told(world: World, question: Question, mode: str, what: str) -> str:
    lines = [
        f"seed {world.seed}, indexes {mode}: the scan {what}",
        f"filter:  {question.text!r}",
        f"request: {question.request}",
        f"DuckDB:  {question.sql!r}",
        *(f"column:  {c.key} {c.name!r} {c.kind}" for c in world.columns),
        *(f"table:   {step}" for step in world.story),
        f"again:   python -m tests.readers.differential.harness {world.seed}",
    ]
    return "\n".join(lines)


# --- values by their bits -----------------------------------------------------------------------


def same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether both hold the same: a NaN is a NaN, and -0.0 is not 0.0."""
    kind = _by_bits(one.type)
    left, right = (_whole(values).view(kind) for values in (one, other))
    return bool(left.equals(right))


def _whole(values: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _by_bits(kind: pa.DataType) -> pa.DataType:
    """The type with integers in the place of floats."""
    if pa.types.is_floating(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_by_bits(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_by_bits(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_by_bits(kind.key_type), _by_bits(kind.item_type))
    return kind


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write(f"seed {argument}: {run(int(argument))} answers are right\n")
