"""The text of the specification against the code: its examples, and a reader made from it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat.binding import BoundCompare
from strandline.tableformat.indexes.hashing import canonical_bytes, literal_hashes
from strandline.tableformat.indexes.kinds import KINDS, mask_of_all
from strandline.tableformat.types import from_json
from tests.filter_cases import TYPES
from tests.tableformat.indexes.cases import (
    ALL_NAMES,
    FEW,
    VARIANTS,
    Variant,
    case_of,
    cases,
    opened,
)
from tests.tableformat.indexes.spec_reader import Spec

SPEC = (Path(__file__).parents[3] / "SPEC.md").read_text(encoding="utf-8")
TEXT = SPEC[SPEC.index("## 20 Index kinds") : SPEC.index("## 21 ")]
EXAMPLE = re.compile(
    r"<!-- index: (?P<kind>\w+) (?P<type>\w+); (?:algorithm: (?P<algorithm>\w+); )?"
    r"zone_rows: (?P<zone_rows>\d+); rows: (?P<rows>[^\n]*); params: (?P<params>[^\n]*) -->\n"
    r"```text\n(?P<blob>.*?)```",
    re.DOTALL,
)
EXAMPLES = [match.groupdict() for match in EXAMPLE.finditer(TEXT)]


def blob_of(text: str) -> bytes:
    """The hex digits of each line; what follows three spaces is a remark."""
    hexes = []
    for line in text.splitlines():
        pairs = re.match(r"(?:[0-9a-f]{2}(?: {1,2}|$))+", line)
        assert pairs, line
        hexes.append(pairs[0])
    return bytes.fromhex("".join(hexes))


def test_every_kind_has_an_example() -> None:
    """[E6] Specified to the byte."""
    assert {example["kind"] for example in EXAMPLES} == set(KINDS)
    assert {e["algorithm"] for e in EXAMPLES if e["algorithm"]} == {"sbbf", "xor8"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e['kind']} {e['type']}")
def test_examples_are_what_is_written(example: dict[str, Any]) -> None:
    """[E6] These rows give these bytes and params, and both readers agree about them."""
    rows = [math.nan if row == "NaN" else row for row in json.loads(example["rows"])]
    case = case_of(example["type"], rows, int(example["zone_rows"]))
    variant = Variant(example["kind"], example["algorithm"] or "")

    built = variant.build(case.zones)

    assert built is not None
    assert built.params == json.loads(example["params"])
    assert built.data.hex(" ") == blob_of(example["blob"]).hex(" ")


def test_hashes_are_those_of_the_table() -> None:
    """[IDX-7] Canonical bytes and hashes, as the text gives them."""
    rows = re.findall(
        r"^\| (\S+)(?:, \S+)? \| (\w+).*\| `([0-9a-f ]+)` \| `([0-9a-f]{16})` \|$",
        TEXT,
        re.MULTILINE,
    )
    assert len(rows) == 4
    for text, kind, data, hashed in rows:
        value: Any = text.strip("`")
        value = float(value) if kind == "float64" else int(value) if kind == "int64" else value
        assert canonical_bytes(value, from_json(kind)) == bytes.fromhex(data)
        assert f"{int(literal_hashes([value], from_json(kind))[0]):016x}" == hashed


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_a_reader_made_from_the_text_agrees(name: str, data: st.DataObject) -> None:
    """[X6, E6] Byte by byte, in plain Python: the same zones for single values and for ranges."""
    case = data.draw(cases(name))
    distinct = case.zones.few_distinct
    assert distinct is not None
    if not distinct.values:
        return
    ends = sorted(data.draw(st.tuples(*[st.integers(0, len(distinct.values) - 1)] * 2)))
    low, high = (distinct.values[end] for end in ends)
    for variant in VARIANTS:
        built = variant.build(case.zones)
        index = opened(variant, case)
        if built is None or index is None:
            continue
        spec = Spec(
            variant.kind, built.data, built.params, TYPES[name],
            case.layout.row_count, case.layout.zone_rows,
        )  # fmt: skip
        for a, b in ((low, high), (low, low), (high, high)):
            expected = spec.between(a, b)
            mask = _between(index, case.column, a, b)
            assert (None if mask is None else mask.tolist()) == expected, str(variant)


def _between(index: Any, column: Any, low: Any, high: Any) -> Any:
    if low is high:
        return index.may_match(BoundCompare(column, "=", low))
    nan = isinstance(high, float) and math.isnan(high)
    leaves = [BoundCompare(column, ">=", low)]
    # Nothing is above NaN, so a range up to NaN has no upper end.
    return mask_of_all(index, leaves if nan else [*leaves, BoundCompare(column, "<=", high)])
