"""A table's configuration: what users write, what is stored, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import strandline
from strandline.tableformat import schema as schemas
from strandline.tableformat.config import Config, from_json, make_config
from strandline.tableformat.errors import CorruptTable, InvalidInput
from tests.tables import Place, memory_url

SCHEMA = schemas.schema_from(
    {"ts": "timestamptz", "user": "string", "amount": "float64", "n": "int64"}
)
LAYOUT_KEYS = {
    "shard_by",
    "shards",
    "shard_hash",
    "sort_by",
    "jitter_ms",
    "on_late",
    "zone_rows",
    "zone_pages",
}


def made(**options: Any) -> Config:
    """A configuration of the small schema."""
    return make_config(SCHEMA, time_column="ts", **options)


def test_only_what_was_chosen_is_stored() -> None:
    """[CFG-4] Tables without these fields read as they always did, and look the same."""
    assert not LAYOUT_KEYS & made().to_json().keys()
    chosen = made(
        shard_by="n",
        shards=8,
        shard_hash="mask",
        sort_by=["user", "n"],
        jitter_ms=1500,
        on_late="error",
        zone_rows=1024,
        zone_pages=True,
    )

    assert chosen.to_json().keys() >= LAYOUT_KEYS
    assert (chosen.shard_by, chosen.sort_by) == (4, (2, 4))
    assert made(jitter_ms=0).to_json()["jitter_ms"] == "0"
    assert from_json(chosen.to_json(), SCHEMA) == chosen
    assert from_json(made().to_json(), SCHEMA) == made()


def test_unknown_settings_are_kept() -> None:
    """[VER-3] What a later version stores survives a commit by this one."""
    stored = {**made(shard_by="user").to_json(), "new": {"a": 1}}

    assert from_json(stored, SCHEMA).to_json() == stored


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shards": 2}, "needs shard_by"),
        ({"shard_by": "user", "shards": 0}, "from 1 to 1024"),
        ({"shard_by": "user", "shards": 1025}, "from 1 to 1024"),
        ({"shard_by": "user", "shards": True}, "from 1 to 1024"),
        ({"shard_by": "nobody"}, "nobody"),
        ({"shard_by": "amount", "shards": 2}, "canonical"),
        ({"shard_by": "user", "shard_hash": "md5"}, "xxh64, mask"),
        ({"shard_by": "user", "shards": 2, "shard_hash": "mask"}, "integer"),
        ({"shard_by": "n", "shards": 6, "shard_hash": "mask"}, "power of two"),
        ({"sort_by": "user"}, "not one string"),
        ({"sort_by": ["user", "user"]}, "twice"),
        ({"sort_by": ["nobody"]}, "nobody"),
        ({"jitter_ms": -1}, "jitter_ms"),
        ({"jitter_ms": "120s"}, "jitter_ms"),
        ({"on_late": "keep"}, "drop, error"),
        ({"zone_rows": 0}, "zone_rows"),
        ({"zone_rows": 3000}, "whole number of zones"),
        ({"row_group_rows": 3000}, "whole number of zones"),
        ({"zone_pages": 1}, "True or False"),
        ({"uncapped": 1}, "True or False"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], reason: str) -> None:
    """[SHA-3] [ZON-1] With the setting's name and what would be right."""
    with pytest.raises(InvalidInput, match=reason):
        made(**options)


def test_a_row_group_smaller_than_a_zone_is_one_zone() -> None:
    """[ZON-1] Unless a size was asked for, small row groups need no second setting."""
    assert made(row_group_rows=1024).zone_rows == 1024
    assert made(row_group_rows=4096).zone_rows == 2048


def test_older_tables_with_odd_row_groups_still_open() -> None:
    """[CFG-4] Their row groups were never a whole number of zones; nobody promised that."""
    stored = {**made().to_json(), "row_group_rows": 3000}

    assert from_json(stored, SCHEMA).zone_rows == 2048


@pytest.mark.parametrize(
    "change",
    [
        {"shard_by": 99},
        {"shard_by": 3, "shards": 2},
        {"shard_by": "user"},
        {"shard_by": []},
        {"shards": 2},
        {"shard_by": 2, "shards": 2000},
        {"shard_by": 2, "shards": 0},
        {"shard_by": 2, "shard_hash": "crc"},
        {"shard_by": 2, "shard_hash": "mask"},
        {"sort_by": [99]},
        {"sort_by": [[1]]},
        {"sort_by": 2},
        {"jitter_ms": 5},
        {"jitter_ms": "-5"},
        {"on_late": "keep"},
        {"zone_rows": 0},
        {"zone_pages": "yes"},
    ],
)
def test_stored_settings_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    """[CFG-4] [CFG-5] Metadata is untrusted; a writer must not lay rows out by guesses."""
    with pytest.raises(CorruptTable):
        from_json({**made().to_json(), **change}, SCHEMA)


def test_columns_the_layout_stands_on_stay() -> None:
    """[EVO-6] Renamed, yes; dropped or changed in type, no. New rows follow the same column."""
    table = Place(memory_url()).create(
        {"ts": "timestamptz", "user": "string", "n": "int32"}, shard_by="user", sort_by=["n"]
    )

    with pytest.raises(strandline.InvalidInput, match="shard key"):
        table.evolve(drop=["user"])
    with pytest.raises(strandline.InvalidInput, match="sorted by"):
        table.evolve(drop=["n"])
    with pytest.raises(strandline.InvalidInput, match="sorted by"):
        table.evolve(widen={"n": "int64"})
    table.evolve(rename={"user": "who", "n": "number"})
    table.append([{"who": "a", "number": 2}, {"who": "a", "number": 1}])
    assert table.scan(columns=["number"]).to_arrow().column("number").to_pylist() == [2, 1]
    assert table.config.shard_by == 2
