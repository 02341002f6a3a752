"""SPEC.md says what the code does: its examples decode, its tables are the code's."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.catalog import documents
from strandline.queries import documents as remembered
from strandline.tableformat import (
    actions,
    codec,
    config,
    lifecycle,
    manifest,
    pages,
    paths,
    schema,
    segments,
    stats,
    timestamps,
    types,
    values,
    windows,
)
from strandline.tableformat.indexes import catalog, reference
from strandline.tableformat.segments import PageRef
from tests.format_spec.places import (
    CONFORMANCE,
    GOLDEN,
    ROOT,
    SPEC,
    Example,
    examples,
    fields_in,
    table_after,
    validator,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REQUIREMENT = re.compile(r"\[([A-Z]+-[0-9]+)\]")
TEXT = SPEC.read_text(encoding="utf-8")

ELSEWHERE = {
    "catalog/test_chain.py": {
        "HEAD-2": "test_a_warm_head_is_confirmed_in_one_request",
    },
    "catalog/test_commit.py": {
        "COM-1": "test_a_lost_reply_is_settled_by_reading",
        "COM-2": "test_an_outcome_that_stays_unclear_is_said_so_and_nothing_is_deleted",
        "COM-4": "test_a_lost_race_is_rebased_without_writing_data_again",
        "GC-4": "test_a_stalled_writer_cannot_commit_a_version_that_was_removed",
    },
    "catalog/test_tidy.py": {
        "COM-11": "test_two_rolls_of_the_same_segments_land_once",
        "PAG-11": "test_a_manifest_stays_small_however_long_the_history",
        "PAG-3": "test_pages_keep_stats_of_every_kind_of_column",
        "POS-6": "test_idle_positions_are_forgotten_only_when_all_pages_merge",
    },
    "readers/differential/test_differential.py": {
        "RD-5": "test_scans_give_the_rows_that_duckdb_gives",
        "IDX-3": "test_scans_give_the_rows_that_duckdb_gives",
        "IDX-4": "test_scans_give_the_rows_that_duckdb_gives",
    },
    "strandline/test_evolve.py": {
        "EVO-1": "test_changes_that_would_lose_meaning_are_refused",
        "EVO-6": "test_changes_that_would_lose_meaning_are_refused",
    },
    "strandline/test_exactly_once.py": {
        "POS-3": "test_wal_records_follow_each_other_without_gap_or_overlap",
        "POS-4": "test_a_log_without_a_stored_position_is_not_replayed_blindly",
        "POS-5": "test_one_id_cannot_be_both_kinds_of_writer",
    },
    "strandline/test_table.py": {
        "HEAD-4": "test_time_travel_by_version_and_by_time",
        "RD-6": "test_a_handle_is_live_and_a_scan_is_pinned",
    },
    "tableformat/indexes/test_kinds.py": {
        "IDX-1": "test_a_layout_that_is_none_is_refused",
        "IDX-2": "test_no_index_removes_a_zone_with_a_true_row",
        "IDX-8": "test_an_index_outlives_the_widening_of_its_column",
    },
    "tableformat/indexes/test_hostile.py": {
        "IDX-5": "test_a_blob_cut_at_any_byte_is_refused",
        "IDX-6": "test_parameters_of_any_kind_are_survived",
        "IDX-9": "test_an_index_of_another_type_or_layout_is_survived",
        "IDX-14": "test_any_bytes_are_survived",
        "IDX-19": "test_any_flipped_bit_is_survived",
        "IDX-21": "test_any_flipped_bit_is_survived",
        "IDX-24": "test_any_flipped_bit_is_survived",
    },
    "tableformat/indexes/test_specification.py": {
        "IDX-10": "test_a_reader_made_from_the_text_agrees",
        "IDX-11": "test_a_reader_made_from_the_text_agrees",
        "IDX-17": "test_a_reader_made_from_the_text_agrees",
        "IDX-18": "test_a_reader_made_from_the_text_agrees",
    },
    "tableformat/indexes/test_bounds.py": {
        "IDX-12": "test_a_zone_map_holds_the_bounds_of_each_zone",
        "IDX-13": "test_fences_are_the_exact_bounds_of_each_zone",
        "IDX-15": "test_nulls_are_in_no_calendar",
        "IDX-23": "test_rank_orders_zones_with_nan_nulls_and_unknown_bounds",
    },
    "tableformat/indexes/test_points.py": {
        "IDX-16": "test_an_empty_column_holds_nothing",
        "IDX-20": "test_an_enum_answers_exactly",
    },
    "tableformat/indexes/test_value_range.py": {
        "IDX-22": "test_few_values_are_told_apart",
    },
    "tableformat/test_page_table.py": {
        "PGT-1": "test_a_page_table_by_a_stranger_is_refused_or_harmless",
        "PGT-2": "test_every_flipped_byte_is_refused",
        "PGT-3": "test_every_truncation_is_refused",
        "PGT-4": "test_files_of_other_shapes",
        "PGT-5": "test_a_page_table_tells_what_a_walk_over_all_headers_finds",
        "PGT-6": "test_a_page_table_tells_what_a_walk_over_all_headers_finds",
        "PGT-7": "test_files_of_other_shapes",
        "PGT-8": "test_columns_with_equal_pages_share_a_layout",
        "PGT-9": "test_a_page_table_by_a_stranger_is_refused_or_harmless",
        "PGT-10": "test_the_rows_of_the_segment_must_fit",
    },
    "readers/test_split_reader.py": {
        "PGT-11": "test_a_flipped_bit_in_a_page_is_noticed",
        "PGT-12": "test_a_page_that_holds_other_rows_than_its_table_says",
        "PGT-13": "test_a_page_table_of_another_file_costs_time_only",
        "PGT-14": "test_every_column_of_every_zone",
    },
    "tableformat/test_storage_contract.py": {
        "STO-1": "test_one_thread_wins_each_name",
        "STO-2": "test_list_shows_the_files_of_one_folder",
    },
    "tableformat/test_storage_local.py": {
        "STO-5": "test_everything_is_durable_before_the_link_and_the_name_after_it",
    },
    "tableformat/test_storage_s3.py": {
        "STO-3": "test_each_answer_to_a_read_has_one_meaning",
        "STO-6": "test_the_probe_refuses_a_store_that_ignores_the_condition",
    },
    "tableformat/test_timestamps.py": {
        "TIM-1": "test_times_outside_the_calendar_are_refused",
    },
    "writers/test_segment_file.py": {
        "SEG-5": "test_stats_equal_a_look_at_every_value",
        "STA-1": "test_stats_equal_a_look_at_every_value",
    },
}
"""Requirements whose tests belong to another package and speak of it in their own words."""

NOT_YET: dict[str, str] = {}
"""Duties of commands that do not exist. SPEC.md says so in its status; the list may only shrink."""


# --- examples -----------------------------------------------------------------------------------


def _page_ref(suffix: str) -> PageRef:
    return PageRef(
        path=f"_strandline/pages/1-0123456789abcdef{suffix}",
        object_bytes=1,
        xxh64="0" * 16,
        entries=1,
        row_count=1,
        size_bytes=1,
        min_seq=0,
        max_seq=0,
        min_ts=0,
        max_ts=0,
        column_stats={},
    )


def _as_document(value: Any) -> bytes:
    return codec.encode_document(json.dumps(value).encode())


_EVENTS = schema.schema_from({"ts": "timestamptz", "user": "string"})

DECODERS: dict[str, Callable[[Any], Any]] = {
    "manifest": lambda value: manifest.from_json(value, int(value["version"])),
    "schema": schema.from_json,
    "type": types.from_json,
    "config": lambda value: config.from_json(value, _EVENTS),
    "commit": manifest.record_from_json,
    "segment": segments.segment_from_json,
    "window": segments.window_from_json,
    "index_ref": lambda value: reference.index_from_json(value, "example"),
    "index_catalog": lambda value: catalog.decode_catalog(
        data := _as_document(value),
        reference.IndexRef(10**6, len(data), codec.checksum(data), {}),
        "example",
    ),
    "floor_raise": lifecycle._raise_from_json,  # noqa: SLF001
    "tag": lifecycle._tag_from_json,  # noqa: SLF001
    "materialization": lambda value: remembered.decode(_as_document(value), "example", 3),
    "position": manifest.position_from_json,
    "position_page_ref": manifest.document_ref_from_json,
    "window_page": lambda value: documents._decode_windows(  # noqa: SLF001
        _page_ref(".json.lz4"), _as_document(value)
    ),
    "position_page": lambda value: documents._decode_positions(  # noqa: SLF001
        _page_ref(".json.lz4"), _as_document(value)
    ),
}


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.kind)
def test_every_json_example_is_decoded(example: Example) -> None:
    """No example drifts: the library decodes it, and its JSON Schema accepts it."""
    assert example.kind, f"this example carries no marker: {example.text[:200]}"
    value = json.loads(example.text)

    if example.kind == "stats":
        stats.from_json(types.from_json(example.argument), value, "example")
    else:
        DECODERS[example.kind](value)

    validator(example.kind).validate(value)


def test_there_are_examples_of_every_kind() -> None:
    """Each decoder has an example, so each record is shown in SPEC.md at least once."""
    assert {example.kind for example in examples()} == {*DECODERS, "stats"}


def test_the_worked_example_is_the_golden_table() -> None:
    """The manifest shown in section 16 is the one stored in the golden table, field by field."""
    (example,) = (example for example in examples() if example.golden)
    file = GOLDEN / example.golden / "table" / paths.manifest_path(3)

    assert json.loads(example.text) == codec.decode_document(file.read_bytes(), "golden")


def test_the_worked_example_shows_the_recorded_rows() -> None:
    """The rows printed in section 16 are those recorded beside the golden table."""
    expected = json.loads((GOLDEN / "v1_worked_example" / "expected.json").read_text())["rows"]
    shown = [
        {"_seq": seq, "_ts": ts, "_window": window, "name": name, "x": x}
        for seq, ts, window, name, x in table_after("12. **Drop**")
    ]
    for row in shown:
        row["name"] = {"null": None, "d \u00d7 40": "d" * 40}.get(row["name"], row["name"])

    assert shown == [{name: row[name] for name in shown[0]} for row in expected]


# --- requirement ids ----------------------------------------------------------------------------


def _defined() -> list[str]:
    """Every id that SPEC.md speaks of."""
    return sorted(set(REQUIREMENT.findall(TEXT)))


def _cited_by_tests() -> dict[str, set[str]]:
    cited: dict[str, set[str]] = {}
    for file in (ROOT / "tests").rglob("*.py"):
        if file.name != "test_spec.py":
            for found in re.findall(r"[A-Z]+-[0-9]+", file.read_text(encoding="utf-8")):
                cited.setdefault(found, set()).add(file.name)
    for case in json.loads((CONFORMANCE / "cases.json").read_text())["cases"]:
        for found in case["cites"]:
            cited.setdefault(found, set()).add("cases.json")
    for found in REQUIREMENT.findall((ROOT / "tests/format_spec/test_spec.py").read_text()):
        cited.setdefault(found, set()).add("test_spec.py")
    return cited


def _tested_elsewhere() -> set[str]:
    return {found for tests in ELSEWHERE.values() for found in tests}


def test_every_requirement_has_a_test() -> None:
    """Everything specified is tested: each id is cited by a test or a case that runs here."""
    cited = _tested_elsewhere().union(_cited_by_tests(), NOT_YET)

    assert [found for found in _defined() if found not in cited] == []


@pytest.mark.parametrize("file", ELSEWHERE)
def test_requirements_tested_elsewhere_name_a_test(file: str) -> None:
    """The list of exceptions names tests that exist."""
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")

    assert [test for test in ELSEWHERE[file].values() if f"def {test}(" not in text] == []
    assert _tested_elsewhere() <= set(_defined())


def test_what_is_not_tested_yet_is_said_in_the_specification() -> None:
    """A reader of SPEC.md learns which duties nobody performs so far, and only those."""
    status = TEXT[TEXT.index("**Status.**") : TEXT.index("**Binding words.**")]

    assert set(REQUIREMENT.findall(status)) == set(NOT_YET)
    assert not set(NOT_YET) & (_tested_elsewhere() | set(_cited_by_tests()))


def test_every_cited_requirement_exists() -> None:
    """A case or a test of this folder never cites an id that SPEC.md lacks."""
    prefixes = {found.split("-")[0] for found in _defined()}
    known = set(_defined())

    unknown = [
        found
        for found, where in _cited_by_tests().items()
        if found.split("-")[0] in prefixes and found not in known and "cases.json" in where
    ]

    assert unknown == []


def test_the_contents_are_the_sections() -> None:
    """Whoever follows the list at the top finds each section, under its own number."""
    sections = re.findall(r"^## (\d+) (.+)$", TEXT, re.MULTILINE)
    listed = re.findall(r"\[(\d+) [^\]]+\]\(#([^)]+)\)", TEXT[: TEXT.index("## 1 Terms")])
    anchors = [
        (number, re.sub(r"[^a-z0-9 -]", "", f"{number} {title}".lower()).replace(" ", "-"))
        for number, title in sections
    ]

    assert listed == anchors
    assert [int(number) for number, _ in sections] == list(range(1, len(sections) + 1))


def test_ids_of_a_group_are_counted_without_gaps() -> None:
    """A gap would be a requirement that somebody removed; ids are never reused or dropped."""
    groups: dict[str, list[int]] = {}
    for found in _defined():
        group, number = found.split("-")
        groups.setdefault(group, []).append(int(number))

    assert {g: n for g, n in groups.items() if sorted(n) != list(range(1, len(n) + 1))} == {}


# --- tables of the specification ----------------------------------------------------------------


def test_field_tables_are_those_of_the_code() -> None:
    """[M2] Every record's table in SPEC.md lists exactly the fields the code reads and writes."""
    assert fields_in("## 6 The root manifest") == manifest._FIELDS  # noqa: SLF001
    assert fields_in("**6.1 Config.**") == config._FIELDS | {manifest.STREAM}  # noqa: SLF001
    assert fields_in("**7.2 Segment entries.**") == segments._SEGMENT_FIELDS  # noqa: SLF001
    of_index = {field.name for field in dataclasses.fields(reference.IndexRef)}
    assert fields_in("**19.1 The reference.**") == of_index
    promised = "min_seq max_seq row_count size_bytes schema_version status created_at path"
    assert {*promised.split(), "column_stats"} <= segments._SEGMENT_FIELDS  # noqa: SLF001


def test_the_columns_of_a_segment_page_are_those_of_the_code() -> None:
    """[PAG-5] [PAG-6] SPEC.md 8.1 names each column of a page."""
    column = schema.Column(id=7, name="x", physical_name="x", type=types.ColumnType("int64"))
    of_stats = {field.name.replace("7", "<id>") for field in pages.stats_fields(column)}

    assert fields_in("**8.1 Segment pages**") == {
        *pages.FIXED.names,
        "index",
        "extra",
        *of_stats,
    }


def _type_rows() -> list[list[str]]:
    return [row for row in table_after("**5.1 Types.**") if row[0].startswith('`"')]


def _named(cell: str) -> types.ColumnType:
    name = re.findall(r'`"([^"]+)"`', cell)[0]
    return types.from_json("decimal(20,3)" if name.startswith("decimal") else name)


def test_the_type_table_names_every_type_with_its_domain() -> None:
    """[TYP-1] The closed set of SPEC.md is the code's, with the same domain for stats."""
    assert {_named(row[0]).name for row in _type_rows()} == {*types._ARROW, "decimal"}  # noqa: SLF001
    for row in _type_rows():
        domain = _named(row[0]).domain
        assert domain is not None
        assert row[5] == domain.value


@pytest.mark.parametrize("row", _type_rows(), ids=lambda row: row[0])
def test_the_type_table_tells_what_other_engines_see(row: list[str], tmp_path: Path) -> None:
    """[TYP-1] Arrow, Parquet's physical type and DuckDB's type are as SPEC.md 5.1 says."""
    kind = _named(row[0])
    arrow = types.to_arrow(kind)
    file = tmp_path / "one.parquet"
    pq.write_table(pa.table({"v": pa.nulls(1, arrow)}), file, store_schema=False)
    leaf = pq.ParquetFile(file).schema.column(0)

    found = duckdb.sql(f"SELECT typeof(v) FROM '{file}'").fetchall()

    arrow_cell = row[1].replace("p, s", "20, 3").replace(", UTC]", ", tz=UTC]")
    assert str(arrow).replace("[day]", "") == arrow_cell
    assert leaf.physical_type in row[2]
    assert found == [(row[4].replace("p,s", "20,3"),)]


def test_the_widening_table_is_the_code() -> None:
    """[EVO-4] Exactly the pairs of SPEC.md 5.2 are allowed."""
    scalars = [types.ColumnType(name) for name in types._ARROW]  # noqa: SLF001
    allowed = {
        (old.name, new.name) for old in scalars for new in scalars if types.can_widen(old, new)
    }
    listed = {
        (old, new)
        for row in table_after("`nullable` does not change")
        for old in re.findall(r"`(\w+)`", row[0])
        for new in re.findall(r"`(\w+)`", row[1])
    }

    assert listed == allowed
    assert types.can_widen(types.decimal(5, 2), types.decimal(38, 2))
    assert not types.can_widen(types.decimal(5, 2), types.decimal(6, 3))
    assert not types.can_widen(types.decimal(5, 2), types.decimal(5, 2))


def test_the_window_table_is_the_code() -> None:
    """[WIN-1] [K1] Each TTL of SPEC.md 7.1, and one millisecond more, gives the stated length."""
    lengths = [int(row[2]) for row in table_after("**7.1 Windows.**")]
    limits = [15 * windows.MINUTE_MS, windows.DAY_MS, 7 * windows.DAY_MS, 30 * windows.DAY_MS]

    assert [windows.window_ms_for_ttl(ttl) for ttl in (*limits, None)] == lengths
    assert [windows.window_ms_for_ttl(ttl + 1) for ttl in limits] == lengths[1:]


def test_the_limits_are_those_of_the_code() -> None:
    """Numbers in SPEC.md 17 are constants of the code."""
    limits = {row[0]: row[1] for row in table_after("## 17 Limits")}

    assert codec.MAX_OBJECT_BYTES == 16 * 2**20
    assert codec.MAX_TEXT_BYTES == 128 * 2**20
    assert limits["Document, compressed / text"] == "16 MiB / 128 MiB"
    assert limits["`_ts`"] == f"0 to {timestamps.TS_LIMIT_MS - 1}"
    assert (schema.MAX_COLUMNS, schema.MAX_NAME_BYTES) == (10_000, 255)
    assert (types.MAX_NESTING, types.MAX_DECIMAL_PRECISION) == (32, 38)
    assert (pages.MAX_PAGE_ENTRIES, pages.MAX_UNFOLDED_BYTES) == (32_768, 256 * 2**20)
    assert codec.MAX_MARKS == 4_000_000
    assert (stats.MAX_BOUND_LENGTH, config.MAX_STATS_COLUMNS) == (32, 32)
    assert (manifest.HISTORY_LENGTH, windows.MAX_WINDOWS_PER_COMMIT) == (32, 256)
    assert (actions.MAX_FENCE_BYTES, actions.MAX_WRITER_ID_BYTES) == (128, 256)


def test_names_of_the_first_versions_are_as_printed() -> None:
    """[LAY-1] [LAY-2] Version ↔ digits, at both ends of the range."""
    assert paths.manifest_path(1).endswith("/09223372036854775806.json.lz4")
    assert paths.manifest_path(2).endswith("/09223372036854775805.json.lz4")
    assert paths.manifest_version("00000000000000000000.json.lz4") == values.INT64_MAX
    assert paths.manifest_version("09223372036854775807.json.lz4") is None
    assert paths.manifest_version("9223372036854775806.json.lz4") is None
    assert "09223372036854775806" in TEXT


def test_the_checksum_of_nothing_is_as_printed() -> None:
    """[DOC-5] XXH64, seed 0, most significant digit first."""
    assert codec.checksum(b"") == "ef46db3751d8e999"
    assert codec.checksum(b"") in TEXT
