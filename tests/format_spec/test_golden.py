"""Golden tables: what any earlier version has written is read as it was recorded."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import strandline
from strandline.catalog.documents import cold_positions
from strandline.catalog.manifest_service import ManifestService
from strandline.format_spec.conformance.rows import canonical, encode_table
from strandline.tableformat import codec, paths
from tests.format_spec.places import GOLDEN, GOLDENS, documents

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = [file for golden in GOLDENS for file in sorted(golden.glob("expected*.json"))]


def head(name: str) -> dict[str, Any]:
    """The newest manifest of a golden table."""
    file = min((GOLDEN / name / "table" / paths.MANIFESTS).glob("0*.json.lz4"))
    return dict(codec.decode_document(file.read_bytes(), file.name))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_golden_table_still_reads_as_recorded(file: Path) -> None:
    """[C2] [C3] A table written by any earlier version returns the rows stored beside it."""
    expected = json.loads(file.read_text(encoding="utf-8"))
    match = re.fullmatch(r"expected-(\d+)\.json", file.name)
    table = strandline.open_table(file.parent / "table", version=int(match[1]) if match else None)

    names = [column["name"] for column in expected["columns"]]
    rows = encode_table(table.scan(columns=names).to_arrow())

    kinds = {column["name"]: column["type"] for column in expected["columns"]}
    assert [*table.schema.names, "_seq", "_ts", "_window"] == names
    assert [_canonical(kinds, row) for row in rows] == [
        _canonical(kinds, row) for row in expected["rows"]
    ]


def _canonical(kinds: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return {name: canonical(kinds[name], value) for name, value in row.items()}


def test_every_golden_table_has_its_line_in_the_readme() -> None:
    """The README says of each table what it shows and who wrote it."""
    lines = (GOLDEN / "README.md").read_text(encoding="utf-8").splitlines()
    listed = {m[1]: m[2] for line in lines if (m := re.match(r"\| `(v\d+_\w+)` \|(.*)\|$", line))}

    assert set(listed) == {golden.name for golden in GOLDENS}
    assert [name for name, text in listed.items() if "strandline 0." not in text] == []


def test_golden_tables_stay_small() -> None:
    """Bytes that are kept for ever are few."""
    sizes = [f.stat().st_size for f in GOLDEN.parent.rglob("*") if f.is_file()]

    assert sum(sizes) < 4 * 2**20
    assert max(sizes) < 2**16


def test_the_pages_table_has_every_kind_of_page() -> None:
    """[M1] Segments lie inline, in pages, in merged pages and behind a window page at once."""
    found = head("v1_pages")
    versions = [d for kind, d in documents(GOLDEN / "v1_pages" / "table") if kind == "manifest"]

    assert found["segments"]
    assert found["windows"]
    assert found["window_pages"]
    assert any(version["removed_files"] for version in versions)


def test_the_positions_table_has_both_kinds_in_both_places() -> None:
    """Positions of both kinds exist, and one writer stands in two pages: the later one wins."""
    found = head("v1_positions")
    pages = [d for kind, d in documents(GOLDEN / "v1_positions" / "table") if kind != "manifest"]
    kinds = {p["kind"] for page in [found, *pages] for p in page["positions"].values()}

    assert kinds == {"external", "wal"}
    assert len(found["position_pages"]) > 1
    assert found["positions"]


def test_the_position_of_a_folded_writer_is_found() -> None:
    """[PAG-10] [POS-2] A batch that was committed long ago answers with its first result."""
    table = strandline.open_table(GOLDEN / "v1_positions" / "table")
    storage, manifest = table._chain.storage, table.manifest  # noqa: SLF001

    found = cold_positions(ManifestService(storage), manifest, [f"writer-{i}" for i in range(4)])

    assert {key: position.number for key, position in found.items()} == {
        "writer-0": 14,
        "writer-1": 15,
        "writer-2": 12,
        "writer-3": 13,
    }


def test_unknown_fields_survived_commits_and_pages() -> None:
    """[M10] [VER-3] [VER-4] Reserved and unknown fields are kept by every later commit."""
    found = head("v1_unknown_fields")
    (window,) = found["windows"]
    page = GOLDEN / "v1_unknown_fields" / "table" / window["pages"][0]["path"]
    extra = pq.read_table(page).column("extra").to_pylist()

    assert found["files"] == {"columns": [2]}
    assert found["vector_indexes"] == [{"column": 2}]
    assert found["config"]["later"] == {"a": [1, None, "x"]}
    assert [json.loads(text) for text in extra if text] == [
        {"vector_indexes": {"2": {"kind": "hnsw"}}}
    ] * 3


def test_offset_and_stored_time_are_in_their_tables() -> None:
    """Each golden table shows what its name says."""
    assert {s["rows_are"] for s in head("v1_offset_rows")["segments"]} == {"offset"}
    assert {s["ts_stored"] for s in head("v1_stored_ts")["segments"]} == {True, False}
    assert {s["ts_stored"] for s in head("v1_clamp")["segments"]} == {True}
    assert len(head("v1_long_history")["history"]) == 32
    assert head("v1_fence")["fence"] == "token-1"
    assert int(head("v1_floor_and_trim")["trim_seq"]) > 0
