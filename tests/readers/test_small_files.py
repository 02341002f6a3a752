"""Whole small files, as compaction reads them: the rows of every other road, or an error."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from strandline.readers import small_files
from strandline.readers.segment_reader import read_segment
from strandline.readers.small_files import in_groups, read_together
from strandline.tableformat.errors import CorruptTable, MissingFile
from strandline.tableformat.hidden_columns import SEQ_ID, TS_ID
from strandline.writing import TablePlace
from tests.tables import events

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
CONFIGS = [
    {},
    {"timestamping": "arrival"},
    {"shard_by": "user", "shards": 3},
    {"sort_by": ["user"]},
]


def made(tmp_path: Path, **config: Any) -> strandline.Table:
    """A table on disk."""
    return strandline.create_table(
        str(tmp_path / "t"), events(0, 1).schema, time_column="ts", **config
    )


def together(table: strandline.Table) -> pa.Table:
    """All segments, in groups as compaction reads them."""
    place = TablePlace(table)
    manifest, storage = place.head.manifest, place.chain.storage
    ids = {column.id for column in manifest.schema.columns} | {SEQ_ID, TS_ID}
    groups = in_groups(manifest.segments)
    return pa.concat_tables([read_together(storage, manifest, group, ids) for group in groups])


def singly(table: strandline.Table) -> pa.Table:
    """All segments, by the road of scans."""
    place = TablePlace(table)
    manifest, storage = place.head.manifest, place.chain.storage
    ids = {column.id for column in manifest.schema.columns} | {SEQ_ID, TS_ID}
    return pa.concat_tables(
        [read_segment(storage, manifest, entry, ids) for entry in manifest.segments]
    )


@pytest.mark.parametrize("config", CONFIGS, ids=["dense", "stored times", "shards", "sorted"])
def test_all_rows_are_those_of_a_scan(tmp_path: Path, config: dict[str, Any]) -> None:
    """[M7] Whatever the files store of numbers and times; also after a change of columns."""
    table = made(tmp_path, **config)
    for number in range(3):
        table.append(events(10 * number, 10))
    assert together(table).equals(singly(table))
    table.compact(min_segments=3)
    table.append(events(30, 10))
    assert together(table).equals(singly(table))
    table.evolve(rename={"n": "number"}, add={"note": "string", "a.b": "int64"})
    table.append([{"user": "u", "ts": MOMENT, "a.b": 1}, {"user": None, "note": "x"}])
    assert together(table).equals(singly(table))
    table.evolve(add={"a": "int64", "tags": pa.list_(pa.string())})
    table.append([{"user": "u", "tags": ["a", None], "a": 2}, {"user": None, "tags": []}])
    assert together(table).equals(singly(table))


@pytest.mark.parametrize("config", CONFIGS, ids=["dense", "stored times", "shards", "sorted"])
def test_small_files_are_decoded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    """[M7] The quick road is taken, one call to the store for a group."""
    table = made(tmp_path, **config)
    for number in range(5):
        table.append(events(10 * number, 10))
    table.evolve(add={"note": "string"}, drop=["amount"])
    expected = singly(table)

    monkeypatch.setattr(small_files, "SplitReader", not_singly)
    assert together(table).equals(expected)


def rich(first: int, count: int) -> pa.Table:
    """Events with texts that repeat, and nested values."""
    numbers = range(first, first + count)
    tags = [[str(n)] * (n % 3) if n % 5 else None for n in numbers]
    points = [{"x": n if n % 7 else None} if n % 4 else None for n in numbers]
    more = {
        "word": pa.array(["ab"[n % 2] for n in numbers]),
        "tags": pa.array(tags, pa.list_(pa.string())),
        "point": pa.array(points, pa.struct({"x": pa.int64()})),
    }
    rows = events(first, count)
    for name, values in more.items():
        rows = rows.append_column(name, values)
    return rows


def test_dictionaries_nested_columns_and_codecs_are_decoded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M7] Texts that repeat have dictionaries, larger files another codec and row groups."""
    table = strandline.create_table(
        str(tmp_path / "t"), rich(0, 1).schema, time_column="ts", row_group_rows=2048
    )
    for number in range(4):
        table.append(rich(10 * number, 10 - number))
    table.append(rich(100, 5000))
    table.append(rich(6000, 7))
    table.append(rich(7000, 6000))
    kinds = set()
    for path in table.files().column("path").to_pylist():
        footer = pq.ParquetFile(Path(table.url, path)).metadata
        word = footer.row_group(0).column(4)
        assert word.path_in_schema == "word"
        kinds.add((word.compression, word.has_dictionary_page, footer.num_row_groups))
    assert kinds == {("SNAPPY", True, 1), ("SNAPPY", False, 1), ("ZSTD", True, 3)}
    expected = singly(table)
    monkeypatch.setattr(small_files, "SplitReader", not_singly)

    assert together(table).equals(expected)


def not_singly(*_: Any) -> Any:
    """Stands for the road that is not to be taken."""
    raise AssertionError("files are read one by one")


def test_groups_hold_what_is_alike_and_not_too_much(tmp_path: Path) -> None:
    """[M7] [E14] Other layouts, many files and large files begin a new group; order stays."""
    table = made(tmp_path)
    table.append(events(0, 10))
    (entry,) = table.manifest.segments
    large = replace(entry, size_bytes=small_files.SMALL_FILE_BYTES + 1)
    stored = replace(entry, ts_stored=True)
    entries = [*[entry] * 150, stored, entry, large, large, entry, *[large] * 5]

    groups = list(in_groups(entries))

    assert [entry for group in groups for entry in group] == entries
    assert [len(group) for group in groups] == [64, 64, 22, 1, 1, 2, 1, 3, 2]
    assert [len({small_files._layout(e) for e in g}) for g in groups] == [1] * 9  # noqa: SLF001


def test_numbers_outside_a_segment_are_refused(tmp_path: Path) -> None:
    """[X4] A stored number that the manifest does not promise is damage, named by its file."""
    table = made(tmp_path, sort_by=["user"])
    for number in range(2):
        table.append(events(10 * number, 10))
    place = TablePlace(table)
    first, second = table.manifest.segments
    wrong = replace(second, max_seq=second.max_seq - 1)

    with pytest.raises(CorruptTable, match=second.path):
        read_together(place.chain.storage, table.manifest, [first, wrong], {1, SEQ_ID})


@pytest.mark.parametrize(("rows", "step"), [(events, 1), (rich, 7)], ids=["flat", "rich"])
def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path: Path, rows: Any, step: int) -> None:
    """[X4] What compaction reads wrongly would be wrong for ever: checksums come first."""
    table = strandline.create_table(str(tmp_path / "t"), rows(0, 1).schema, time_column="ts")
    for first in (0, 40, 80):
        table.append(rows(first, 40))
    expected = singly(table)
    path = table.files().column("path")[1].as_py()
    file = Path(table.url, path)
    sound = file.read_bytes()
    errors = 0
    for position in range(0, len(sound), step):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        try:
            found = together(table)
        except CorruptTable as error:
            errors += path in str(error)
        else:
            assert found.equals(expected), position
    # Bits of a footer that was read before harm nobody: the file is then read with that one.
    assert errors > len(sound) // step // 3
    file.write_bytes(sound[: len(sound) // 4])
    with pytest.raises(strandline.StrandlineError, match=path):
        together(table)
    file.unlink()
    with pytest.raises(MissingFile, match=path):
        together(table)


def test_a_header_of_a_page_of_lists_with_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """[X4] A page's CRC leaves out its header, and a list that lost an element is a row as well."""
    table = strandline.create_table(str(tmp_path / "t"), rich(0, 1).schema, time_column="ts")
    for first in (0, 40, 80):
        table.append(rich(first, 40))
    expected = singly(table)
    file = Path(table.url, table.files().column("path")[1].as_py())
    sound = file.read_bytes()
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(5)
    assert chunk.path_in_schema.startswith("tags.")
    begin = chunk.data_page_offset
    errors = 0
    for bit in range(8 * 24):
        damaged = bytearray(sound)
        damaged[begin + bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        try:
            assert together(table).equals(expected), bit
        except CorruptTable:
            errors += 1
    assert errors > 100
