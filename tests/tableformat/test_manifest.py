"""Decoding a manifest with an earlier one at hand gives what decoding it alone gives."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from strandline.api import create_in
from strandline.tableformat import codec, manifest, paths
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.storage import open_storage
from tests.tables import SCHEMA, events, memory_url


def documents() -> list[Any]:
    """The JSON of every version of a small table with a schema change."""
    storage = open_storage(memory_url())
    table = create_in(storage, SCHEMA, time_column="ts")
    for batch in range(3):
        table.append(events(batch, 1), properties={"batch": str(batch)})
    table.evolve(rename={"n": "m"})
    table.append(events(3, 1).rename_columns(["ts", "user", "amount", "m"]))
    data = [storage.read(paths.manifest_path(v)) for v in range(1, table.version + 1)]
    return [codec.decode_document(d, "test") for d in data]


def test_reused_parts_are_the_same_as_decoded_ones() -> None:
    """[M1] Whatever earlier version is known, and also its bytes are the same."""
    found = documents()
    alone = [manifest.from_json(d, v) for v, d in enumerate(found, 1)]

    for version, document in enumerate(found, 1):
        for known in alone:
            again = manifest.from_json(document, version, known)
            assert again == alone[version - 1]
            assert again.to_json() == alone[version - 1].to_json()
    assert manifest.from_json(found[-1], len(found), alone[-2]).segments[0] is alone[-2].segments[0]


@pytest.mark.parametrize(
    ("place", "name", "wrong"),
    [
        ("segments", "path", ["x"]),
        ("segments", "row_count", "2"),
        ("segments", "column_stats", []),
        ("history", "commit_id", {}),
        ("history", "rows", -1),
        ("history", "properties", {"a": 1}),
    ],
)
def test_a_damaged_part_is_not_covered_by_a_known_one(place: str, name: str, wrong: Any) -> None:
    """[X4] The same path with other words is decoded and refused, not taken from the known."""
    *_, before, last = documents()
    known = manifest.from_json(before, int(before["version"]))
    damaged = orjson.loads(orjson.dumps(last))
    damaged[place][-2][name] = wrong

    with pytest.raises(CorruptTable):
        manifest.from_json(damaged, int(last["version"]), known)


@pytest.mark.parametrize(
    "wrong",
    [{"-1": "5"}, {"01": "5"}, {"1000000": "5"}, {"x": "5"}, {"0": 5}, {"0": "-5"}, ["0"], "5"],
)
def test_marks_of_what_is_no_shard_are_refused(wrong: Any) -> None:
    """[MAN-9] The key is a shard as paths write it, the mark an int64."""
    found = documents()[-1]
    assert manifest.from_json(found, 6).shard_marks == {0: int(found["tail"]["last_ts"])}

    with pytest.raises(CorruptTable, match="shard"):
        manifest.from_json({**found, "shard_marks": wrong}, 6)


def test_a_manifest_without_marks_is_written_without() -> None:
    """[LATE-1] Tables from before them stay as they are until rows are appended."""
    first = documents()[0]

    assert "shard_marks" not in first
    assert "shard_marks" not in orjson.loads(manifest.from_json(first, 1).to_json())
