"""Texts as codes into one dictionary: the same rows, whatever the files hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

KINDS = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("few", pa.string()),
        pa.field("many", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
ROWS = 5_000


def row(n: int) -> dict[str, Any]:
    """A row with texts of few and of many values, and nulls among them."""
    few = None if n % 7 == 0 else f"word {n % 5 + n // ROWS}"
    return {"n": n, "few": few, "many": f"text {n}", "raw": bytes([n % 3]), "tags": [f"{n % 2}"]}


def created(tmp_path: Path, **options: Any) -> Table:
    """Three segments whose dictionaries differ, and a small one."""
    table = strandline.create_table(tmp_path / "t", KINDS, **options)
    for first in range(0, 3 * ROWS, ROWS):
        table.append([row(n) for n in range(first, first + ROWS)])
    table.append([row(n) for n in range(3 * ROWS, 3 * ROWS + 3)])
    return table


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sort_by": ["few"]},
        {"primary_key": ["n"]},
        {"row_group_rows": 1_024, "zone_rows": 64, "zone_pages": True},
    ],
    ids=["plain", "sorted", "keyed", "pages"],
)
@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"filter": "few = 'word 4' AND n > 100"},
        {"filter": "n = -1"},
        {"limit": 5_100},
        {"order_by": "n", "descending": True, "limit": 700},
        {"columns": ["few", "_seq"]},
    ],
    ids=["all", "some", "none", "first", "last", "columns"],
)
def test_coded_texts_say_the_same_as_plain_ones(
    tmp_path: Path, options: dict[str, Any], request_: dict[str, Any]
) -> None:
    """[E10] One dictionary for each column of texts or bytes, and in it what the rows say."""
    scan = created(tmp_path, **options).scan(**request_)

    coded, plain = scan.to_arrow(dictionaries=True), scan.to_arrow()

    for name, column in zip(plain.column_names, coded.columns, strict=True):
        is_text = name in ("few", "many", "raw")
        assert pa.types.is_dictionary(column.type) == is_text
        if is_text:
            assert all(
                chunk.dictionary.equals(column.chunk(0).dictionary) for chunk in column.chunks
            )
    assert coded.cast(plain.schema).equals(plain)


def test_groups_over_codes_are_groups_over_texts(tmp_path: Path) -> None:
    """[E10] Dictionaries of several files are put together, so that pyarrow groups by codes."""
    scan = created(tmp_path).scan(["few", "n"])

    coded, plain = (
        rows.group_by("few").aggregate([("n", "sum")]).sort_by("n_sum").to_pylist()
        for rows in (scan.to_arrow(dictionaries=True), scan.to_arrow())
    )

    assert coded == plain
