"""Every field of the metadata, replaced by every wrong kind of value."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from strandline import api
from strandline.catalog.page_cache import PAGES
from strandline.tableformat import codec
from strandline.tableformat.errors import CorruptTable, StrandlineError
from tests.corruption.small_table import (
    Raw,
    encoded,
    fresh,
    head,
    head_document,
    head_path,
    metadata_paths,
    objects,
    only_strandline_errors,
    read_all,
    same_rows,
    with_document,
)
from tests.faults.world import START_MS, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.tableformat.stores.memory import MemoryStorage

Path = tuple[str | int, ...]


MISSING = object()
WRONG: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "true": True,
    "minus_one": -1,
    "minus_one_text": "-1",
    "zero_text": "0",
    "fraction": 0.5,
    "beyond_int64": 1e300,
    "beyond_int64_text": "9223372036854775808",
    "largest_int64_text": "9223372036854775807",
    "largest_int32": 2**31 - 1,
    "empty_text": "",
    "text": "x",
    "arabic_digits": "\u0661\u0662",
    "nul": "a\0b",
    "long_text": "9" * 100_000,
    "empty_list": [],
    "list_of_null": [None],
    "empty_object": {},
    "object_of_null": {"": None},
    "infinity": Raw("1e400"),
    "nan": Raw("NaN"),
    "half_a_character": Raw('"\\ud800"'),
    "big_integer": Raw("9" * 30),
    "deep_list": Raw("[" * 900 + "]" * 900),
    "deep_object": Raw('{"a":' * 900 + "1" + "}" * 900),
}
SOFT = frozenset(
    {
        # What these say is the truth of the table, so another value is another table.
        ("schema",),
        ("config",),
        ("tail",),
        ("trim_seq",),
        ("floor_ts",),
        ("windows",),
        ("window_pages",),
        ("segments",),
    }
)
"""Parts of a manifest whose well-formed change may change the answer."""


def every_place(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every field and every list element of a JSON value."""
    steps: list[str | int] = []
    if isinstance(value, dict):
        steps = list(value)
    elif isinstance(value, list):
        steps = [0, len(value) - 1] if len(value) > 1 else [*range(len(value))]
    for step in steps:
        yield (*path, step)
        yield from every_place(value[step], (*path, step))


def replaced(document: Any, path: Path, value: Any) -> Any:
    """The document with another value in one place."""
    changed = copy.deepcopy(document)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def cases(document: Any, stride: int = 1) -> Iterator[tuple[str, Path, Any]]:
    """Every place with every wrong value, or every `stride`-th of these."""
    number = 0
    for path in every_place(document):
        for name, wrong in WRONG.items():
            number += 1
            if number % stride == 0:
                yield f"{'.'.join(map(str, path))} = {name}", path, wrong


def use_everything(storage: MemoryStorage) -> None:
    """Read the table in every way, and write to it; whoever would wait long is found out."""
    world = World(0, storage)
    table = api.open_in(storage, runtime=world.runtime("user"))
    table.scan(filter="n > 3 AND x < 2.5 AND t LIKE 'text%'", start_seq=1, end_ts=2**50).to_arrow()
    table.scan(columns=["n", "_seq"], limit=2).to_arrow()
    table.files()
    with only_strandline_errors("history"):
        table.history()
    try:
        table.append([{"at": 1, "n": 1}], writer_id="writer-0", batch=0)
        table.append([{"at": 1_799_990_000_000, "n": 1}], writer_id="writer-9", batch=1)
        table.evolve(add={"more": "string"})
    finally:
        assert world.clock.peek_ms() < START_MS + 1_000, "a commit waited for something"


def check_manifest(name: str, path: Path, wrong: Any) -> None:
    """Reading gives the right rows or an error; using it gives no other kind of error."""
    storage = with_document(replaced(head_document(), path, wrong))
    try:
        rows = read_all(storage)
    except StrandlineError:
        rows = None
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {str(error)[:200]}") from error
    if rows is not None and not any(path[: len(soft)] == soft for soft in SOFT):
        assert same_rows(rows), f"{name}: wrong rows"
    with only_strandline_errors(name):
        use_everything(storage)


def test_wrong_values_in_the_manifest() -> None:
    """[X4] A sample of all places and values: an error that names the place, or no harm."""
    tried = 0
    for name, path, wrong in cases(head_document(), stride=11):
        check_manifest(name, path, wrong)
        tried += 1
    assert tried > 500


@pytest.mark.proof
def test_every_wrong_value_in_the_manifest() -> None:
    """[X4] All places and values."""
    for name, path, wrong in cases(head_document()):
        check_manifest(name, path, wrong)


def check_page(kind: str, stride: int) -> None:
    """Put wrong values into a page whose checksum is right, as an attacker would make it."""
    path = metadata_paths()[kind]
    document = codec.decode_document(objects()[path], "page")
    for name, place, wrong in cases(document, stride):
        page = encoded(replaced(document, place, wrong))
        with only_strandline_errors(name):
            use_everything(with_page(f"{kind}s", path, page))


@pytest.mark.parametrize("kind", ["window_page", "position_page"])
def test_wrong_values_in_a_page(kind: str) -> None:
    """[X4] What a page says is used rightly or refused; a sample."""
    check_page(kind, stride=7)


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["window_page", "position_page"])
def test_every_wrong_value_in_a_page(kind: str) -> None:
    """[X4] All places and values."""
    check_page(kind, stride=1)


def with_page(kind: str, path: str, page: bytes) -> MemoryStorage:
    """The table with another page, and a reference that fits it."""
    changed = head_document()
    (ref,) = [ref for ref in changed[kind] if ref["path"] == path]
    ref["object_bytes"], ref["xxh64"] = str(len(page)), codec.checksum(page)
    return fresh({path: page, head_path(): encoded(changed)})


def test_the_cases_cover_every_field() -> None:
    """The walk reaches the innermost fields of each kind of entry."""
    places = set(every_place(head_document()))
    for wanted in (
        ("format_version",),
        ("schema", "columns", 0, "physical_name"),
        ("segments", 0, "column_stats", "1", "min"),
        ("windows", 0, "pages", 0, "xxh64"),
        ("window_pages", 0, "entries"),
        ("position_pages", 0, "min_id"),
        ("history", 0, "committed_at"),
        ("config", "stats_columns", 0),
    ):
        assert wanted in places
    assert head().positions
    PAGES.clear()
    with pytest.raises(CorruptTable, match=r"segment\.row_count"):
        read_all(with_document(replaced(head_document(), ("segments", 0, "row_count"), None)))
