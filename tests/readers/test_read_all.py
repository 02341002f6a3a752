"""Whole small files, as compaction reads them: the rows of every other road, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline
from strandline.readers.segment_reader import read_segment
from strandline.readers.split_reader import SplitReader
from strandline.readers.splits import Split
from strandline.tableformat.errors import CorruptTable, MissingFile
from strandline.tableformat.hidden_columns import SEQ_ID, TS_ID
from strandline.writing import TablePlace
from tests.tables import events


def read_all(table: strandline.Table) -> list[tuple[pa.Table, pa.Table]]:
    """Each segment in one go, and by the road of scans."""
    place = TablePlace(table)
    manifest, storage = place.head.manifest, place.chain.storage
    ids = {column.id for column in manifest.schema.columns} | {SEQ_ID, TS_ID}
    return [
        (
            SplitReader(storage, manifest, Split(entry), ids).read_all(),
            read_segment(storage, manifest, entry, ids),
        )
        for entry in manifest.segments
    ]


@pytest.mark.parametrize(
    "config",
    [{}, {"timestamping": "arrival"}, {"shard_by": "user", "shards": 3}, {"sort_by": ["user"]}],
    ids=["dense", "stored times", "shards", "sorted"],
)
def test_all_rows_are_those_of_a_scan(tmp_path: Path, config: dict[str, Any]) -> None:
    """[M7] Whatever the file stores of numbers and times; also after a change of columns."""
    table = strandline.create_table(
        str(tmp_path / "t"), events(0, 1).schema, time_column="ts", **config
    )
    for number in range(3):
        table.append(events(10 * number, 10))
    assert all(found.equals(expected) for found, expected in read_all(table))
    table.evolve(rename={"n": "number"}, add={"note": "string", "tags": pa.list_(pa.string())})
    assert all(found.equals(expected) for found, expected in read_all(table))
    table.append([{"user": "u", "tags": ["a", None], "note": None}, {"user": None, "tags": []}])
    assert all(found.equals(expected) for found, expected in read_all(table))


def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    """[X4] What compaction reads wrongly would be wrong for ever: checksums come first."""
    table = strandline.create_table(str(tmp_path / "t"), events(0, 1).schema, time_column="ts")
    table.append(events(0, 40))
    ((_, expected),) = read_all(table)
    file = Path(table.url, table.files().column("path")[0].as_py())
    sound = file.read_bytes()
    errors = 0
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        place = TablePlace(table)
        manifest, storage = place.head.manifest, place.chain.storage
        ids = {column.id for column in manifest.schema.columns} | {SEQ_ID, TS_ID}
        reader = SplitReader(storage, manifest, Split(manifest.segments[0]), ids)
        try:
            found = reader.read_all()
        except CorruptTable:
            errors += 1
        else:
            assert found.equals(expected), position
    assert errors > len(sound) // 2
    file.write_bytes(sound[:-9])
    with pytest.raises(strandline.StrandlineError):
        read_all(table)
    file.unlink()
    with pytest.raises(MissingFile):
        read_all(table)
