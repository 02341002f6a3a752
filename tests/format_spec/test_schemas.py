"""JSON Schemas describe what the library writes, field by field, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from jsonschema import Draft202012Validator

import strandline
from strandline.tableformat import codec, config, manifest, rolling, segments
from tests.format_spec.places import (
    CONFORMANCE,
    GOLDENS,
    SCHEMAS,
    definition,
    documents,
    fields_in,
    load_schema,
    table_after,
    validator,
)
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {
    "ROLL_AT": 4,
    "ROLL_STEP": 1,
    "ROLL_ALL_AT": 6,
    "LEAST_PAGE": 2,
    "TIER_FACTOR": 2,
    "FOLD_WINDOWS_ABOVE": 3,
    "KEEP_WINDOWS": 1,
    "FOLD_POSITIONS_ABOVE": 3,
    "KEEP_POSITIONS": 1,
    "MERGE_DOCUMENTS_AT": 2,
}


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda file: file.stem)
def test_every_schema_is_a_schema(file: Path) -> None:
    """The schemas themselves are valid JSON Schema 2020-12."""
    Draft202012Validator.check_schema(load_schema(file.stem))


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_every_golden_document_is_valid(golden: Path) -> None:
    """All manifests and pages of the golden tables fit their schemas."""
    found = documents(golden / "table")

    assert found
    for kind, document in found:
        validator(kind).validate(document)


def test_the_cases_are_valid() -> None:
    """The list of conformance cases has the shape that other runners may rely on."""
    cases = json.loads((CONFORMANCE / "cases.json").read_text(encoding="utf-8"))

    validator("cases").validate(cases)


@pytest.mark.parametrize("seed", range(3))
def test_random_operations_write_valid_documents(seed: int, tmp_path: Path) -> None:
    """[M2] Whatever is done to a table, in any order, each document fits its schema exactly."""
    chance = random.Random(seed)
    table = strandline.create_table(
        tmp_path / "t",
        SCHEMA,
        time_column="ts",
        ttl="1d",
        order=chance.choice(["event_time", "clamp"]),
    )
    with mock.patch.multiple(rolling, **SMALL):
        for step in range(40):
            _one_operation(table, chance, step)

    found = documents(tmp_path / "t")

    assert {kind for kind, _ in found} >= {"manifest", "position_page"}
    for kind, document in found:
        validator(kind, strict=True).validate(document)


@pytest.mark.parametrize(
    "query",
    [
        {"columns": ["n", "user"], "filter": "n > 1", "retention": {"rows": 5, "age": "1d"}},
        {"columns": ["user"], "bucket": "1h", "aggregates": {"s": "sum(n)", "rows": "count(*)"}},
    ],
)
def test_remembered_queries_write_valid_documents(query: dict[str, Any], tmp_path: Path) -> None:
    """[E13] Remembered, refreshed, forgotten: each document fits its schema exactly."""
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    table.append(events(0, 5))
    table.remember("alias", query)
    table.append(events(5, 5))
    table.refresh_query("alias")
    table.forget("alias")

    found = sorted((tmp_path / "t/_strandline/materializations/alias").glob("*.lz4"))

    assert len(found) > 2
    for file in found:
        document = codec.decode_document(file.read_bytes(), file.name)
        validator("materialization", strict=True).validate(document)


def test_stream_tables_write_a_valid_manifest(tmp_path: Path) -> None:
    """[K1] Its manifest is one like all others, with its own part of the configuration."""
    strandline.create_table(
        tmp_path / "t", {"id": "string", "x": "int64"}, kind="stream", ttl="60s", row_id="id"
    )

    ((kind, document),) = documents(tmp_path / "t")

    validator(kind, strict=True).validate(document)


def test_lifecycle_and_keys_write_valid_documents(tmp_path: Path) -> None:
    """[O4] [C9] [C13] [M8] What later features add to a manifest is in the schema too."""
    options: dict[str, Any] = {"time_column": "ts", "ttl": "1d", "uncapped": True}
    keyed = strandline.create_table(tmp_path / "k", SCHEMA, primary_key=["user"], **options)
    table = strandline.create_table(
        tmp_path / "t", SCHEMA, shard_by="user", shards=4, indexes={"n": ["postings"]}, **options
    )
    for each in (keyed, table):
        each.append(events(0, 50))
        each.append(events(50, 50))
        each.tag("monday")
        each.trim(3)
        each.set(ttl="2d")
        each.expire(force=True)
    table.compact()
    table.rollback("monday")
    table.untag("monday")
    table.delete(filter="n = 7")
    table.expire_versions(0, retain_last=2)
    table.mark_dropped()

    for folder in ("k", "t"):
        for kind, document in documents(tmp_path / folder):
            validator(kind, strict=True).validate(document)


def _one_operation(table: Any, chance: random.Random, step: int) -> None:
    kind = chance.choice(["append"] * 6 + ["evolve", "fence"])
    if kind == "append":
        first = chance.randrange(40_000)
        columns = [name for name in events(0, 1).column_names if name in table.schema.names]
        rows = events(first, chance.randint(1, 4), step_ms=chance.choice([1, 10**6, 10**7]))
        keyed = {"writer_id": f"w{chance.randrange(9)}", "batch": step} if step % 2 else {}
        table.append(rows.select(columns), **keyed, properties={"step": str(step)})
    elif kind == "evolve":
        table.evolve(
            add={f"extra{step}": chance.choice(["int32", "decimal(9,2)", "bool"])},
            comments={"ts": f"at step {step}"},
            defaults={"n": step} if "n" in table.schema.names else None,
        )
    else:
        table.fence("x")
        table.fence(None)


def test_schemas_list_the_fields_of_the_code() -> None:
    """No drift: the properties of each schema are the fields that the code reads and writes."""
    assert set(load_schema("manifest")["properties"]) == manifest._FIELDS  # noqa: SLF001
    in_config = config._FIELDS | {manifest.STREAM}  # noqa: SLF001
    assert set(definition("config")["properties"]) == in_config
    assert set(definition("segment")["properties"]) == segments._SEGMENT_FIELDS  # noqa: SLF001
    assert set(definition("commit")["properties"]) == _names(manifest.CommitRecord)
    assert set(definition("position")["properties"]) == _names(manifest.Position)
    assert set(definition("position_page_ref")["properties"]) == _names(manifest.DocumentRef)
    assert set(definition("segment_page_ref")["properties"]) == _names(segments.PageRef)
    assert set(definition("window_page_ref")["properties"]) == _names(segments.PageRef)


def _names(record: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(record)}


def test_schemas_list_the_fields_of_the_specification() -> None:
    """No drift: the properties of each schema are the rows of SPEC.md's tables."""
    assert set(definition("column")["properties"]) == fields_in("## 5 Columns and types")
    assert set(definition("commit")["properties"]) == fields_in("**6.2 Commit records")
    assert set(definition("window")["properties"]) == fields_in("together they count [WIN-3]")
    assert set(definition("stats")["properties"]) == fields_in("**7.3 Column stats.**")
    assert set(definition("segment_page_ref")["properties"]) == fields_in("## 8 Pages")
    assert set(definition("position")["properties"]) == fields_in("**11.4 Writer positions")


def test_required_fields_are_those_of_the_specification() -> None:
    """A field that SPEC.md requires is required by the schema, and no other is."""
    for name, heading in (
        ("commit", "**6.2 Commit records"),
        ("config", "**6.1 Config.**"),
        ("segment", "**7.2 Segment entries.**"),
        ("column", "## 5 Columns and types"),
    ):
        part = definition(name)
        optional = set(part["properties"]) - set(part["required"])
        assert optional == _optional_in(heading), name


def _optional_in(heading: str) -> set[str]:
    return {
        field
        for row in table_after(heading)
        if row[2] not in ("yes", "nullable")
        for field in re.findall(r"`(\w+)`", row[0])
    }
