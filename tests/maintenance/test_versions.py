"""Trim, tags, rollback and drop: what a table forgets, and what it keeps by name."""

from __future__ import annotations

import json

import pytest

from strandline.tableformat.errors import (
    CommitConflict,
    CorruptTable,
    InvalidInput,
    VersionNotFound,
)
from strandline.tableformat.fields import Fields
from strandline.tableformat.lifecycle import lifecycle_from_json
from strandline.tableformat.manifest import from_json
from strandline.tableformat.retention import DropIfEmpty, apply_retention
from strandline.tableformat.windows import HOUR_MS
from tests.maintenance.aging import NOW, Aging, hourly, numbers, row


def test_trimmed_rows_are_hidden_at_once_and_for_ever() -> None:
    """[O4] [TRM-1] [VIS-2] The trim point only rises, and counts at older versions too."""
    world = Aging()
    table = hourly(world, 6)
    version = table.version

    assert table.trim(4) == 4
    assert numbers(table) == [4, 5]
    assert numbers(world.open(version)) == [4, 5]
    assert len(table.manifest.segments) == 2
    assert len(table.manifest.removed_files) == 4
    assert table.trim(2) == 4
    with pytest.raises(InvalidInput, match="next row gets number 6"):
        table.trim(7)
    table.trim(6)
    assert numbers(table) == []
    assert table.append([row(NOW, 6)]).first_seq == 6


def test_a_tag_keeps_a_version_by_name() -> None:
    """[C9] [TAG-1] [GC-3] A tag reads the version it was given, also below the gc marker."""
    world = Aging()
    table = hourly(world, 3)
    assert table.tag("v1.0") == 4
    table.append([row(NOW, 3)])
    assert table.tag("later", 2) == 2

    assert numbers(world.open("v1.0")) == [0, 1, 2]
    assert numbers(world.open("later")) == [0]
    assert table.tags() == {"v1.0": 4, "later": 2}
    table.tag("v1.0", 4)
    with pytest.raises(CommitConflict, match="is at version 4"):
        table.tag("v1.0")
    with pytest.raises(VersionNotFound, match="99"):
        table.tag("x", 99)
    with pytest.raises(InvalidInput):
        table.tag("")
    table.untag("later")
    with pytest.raises(VersionNotFound, match="no tag 'later'"):
        world.open("later")
    with pytest.raises(CommitConflict, match="no tag"):
        table.untag("later")


def test_rollback_restores_rows_and_reuses_no_number() -> None:
    """[C13] [RBK-1] Only segments come back; the tail, the floor and the columns stay."""
    world = Aging()
    table = hourly(world, 3)
    version = table.version
    table.append([row(NOW, 3)], writer_id="w", batch=1)
    table.evolve(add={"more": "int32"})

    table.rollback(version)

    assert numbers(table) == [0, 1, 2]
    assert table.schema.names == ["at", "n", "more"]
    assert len(table.manifest.removed_files) == 1
    assert table.append([row(NOW, 4)]).first_seq == 4
    assert table.append([row(NOW, 3)], writer_id="w", batch=1).duplicate
    assert numbers(table) == [0, 1, 2, 4]
    assert numbers(world.open(version + 1)) == [0, 1, 2, 3]
    table.tag("then", version + 1)
    table.rollback("then")
    assert numbers(table) == [0, 1, 2, 3]
    assert table.verify(deep=True).ok


def test_rollback_brings_back_nothing_that_has_expired_or_was_trimmed() -> None:
    """[RBK-1] [VIS-2] Floors and trim points never fall."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    version = table.version
    table.trim(2)
    table.expire(grace=0)

    table.rollback(version)

    assert numbers(table) == [2, 3, 4, 5, 6]
    assert len(table.manifest.segments) == 5
    assert table.verify(deep=True).ok


def test_rollback_to_what_is_not_there_is_refused() -> None:
    """[RBK-2] Bad input changes nothing."""
    table = hourly(Aging(), 2)

    for version in (0, 99):
        with pytest.raises(VersionNotFound):
            table.rollback(version)
    with pytest.raises(InvalidInput, match="tag"):
        table.rollback("none")
    assert table.refresh().version == 3


def test_what_contradicts_the_rest_is_refused() -> None:
    """[EXP-6] [TAG-1] Records of versions to come, floors above the floor, wrong names."""
    table = hourly(Aging(ttl="6h"), 9)
    table.expire()
    document = json.loads(table.manifest.to_json())
    wrong = {
        "oldest_version": "999",
        "tags": {"": {"version": "1", "tagged_at": "0"}},
        "floor_raises": [{"floor_ts": str(NOW + HOUR_MS), "version": "1", "raised_at": "0"}],
    }
    for name, value in wrong.items():
        with pytest.raises(CorruptTable):
            from_json({**document, name: value}, table.version)
    with pytest.raises(CorruptTable):
        lifecycle_from_json(Fields({"oldest_version": "-1"}, "manifest"))


def test_an_empty_table_is_dropped_only_if_it_is_still_empty() -> None:
    """[O7] [DRP-1] The check is repeated against the version that the drop lands on."""
    world = Aging()
    table = hourly(world, 2)
    with pytest.raises(CommitConflict, match="has rows again"):
        apply_retention(table.manifest, DropIfEmpty(table.version - 1), NOW)
    table.trim(2)
    with pytest.raises(CommitConflict, match="decides anew"):
        apply_retention(table.manifest, DropIfEmpty(table.version - 2), NOW)

    dropped = apply_retention(table.manifest, DropIfEmpty(table.version - 1), NOW)
    assert dropped.dropped_at == NOW
