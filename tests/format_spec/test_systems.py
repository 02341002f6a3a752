"""SPEC.md, sections 22, 25 and 26: a catalog, its users and a kept answer, as they were written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.tableformat import codec
from tests.format_spec.places import GOLDEN, REFERENCE_READER, validator

if TYPE_CHECKING:
    from pathlib import Path

SYSTEMS = GOLDEN / "systems"
EXPECTED = json.loads((SYSTEMS / "expected.json").read_text())
INBOX = SYSTEMS / "catalog" / EXPECTED["inbox"]


@pytest.fixture
def root(tmp_path: Path) -> strandline.Catalog:
    """A copy: reading must not need it, but what is tried here may write."""
    shutil.copytree(SYSTEMS / "catalog", tmp_path / "catalog")
    return strandline.Catalog(tmp_path / "catalog")


def by_the_book(table: Path, *given: str) -> list[dict[str, Any]]:
    """What the reader that was written from SPEC.md alone prints."""
    done = subprocess.run(
        [sys.executable, str(REFERENCE_READER), str(table), *given],
        capture_output=True,
        check=False,
        text=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_golden_catalog_has_its_names(root: strandline.Catalog) -> None:
    """[O5] [O6] [CAT-2] [CAT-5] [CAT-7] Names that live, moved and ended are what they were."""
    names = {n.name: [t.name for t in root.list_tables(n.name)] for n in root.list_namespaces()}
    assert names == EXPECTED["live"]
    for name in ("moved", "EU/returns.v2"):
        assert root.open_table(("shop", name)).scan().to_arrow().to_pylist() == [{"n": 1}]
    with pytest.raises(strandline.TableNotFound):
        root.open_table("shop.moves")
    root.undrop_table("shop.ends")
    assert root.open_table("shop.ends").scan().count() == 1


def test_golden_users_read_as_recorded(root: strandline.Catalog) -> None:
    """[M9] [USR-1] [USR-2] [USR-5] Compacted, tagged, deleted from, expired and evolved chains."""
    table: Any = root.open_table("app.inbox")

    found = {
        user: table.user(user).scan(["at", "text", "more", "_seq"]).to_arrow().to_pylist()
        for user in table.users()
    }

    assert found == EXPECTED["users"]
    ada = table.user("ada")
    assert (ada.manifest.files_floor, ada.tags()) == (2, {"kept": 2})
    assert table.verify(deep=True).ok
    assert "compact" in {record.operation for record in ada.history()}
    assert ada.append([{"at": 0, "text": "x", "more": 2}], writer_id="w", batch=299).duplicate
    assert ada.append([{"at": EXPECTED["now_ms"], "text": "x", "more": 2}]).first_seq == 5


@pytest.mark.parametrize("user", EXPECTED["users"])
def test_a_stranger_reads_a_golden_user(user: str) -> None:
    """[X6] [USR-1] [USR-2] The text is enough to read one user, without a line of the library."""
    rows = by_the_book(INBOX, "--user", user)

    texts = [(row["text"], int(row["_seq"])) for row in rows]
    assert texts == [(row["text"], row["_seq"]) for row in EXPECTED["users"][user]]


KEYED = GOLDEN / "keyed_users"
KEYED_ROWS = json.loads((KEYED / "expected.json").read_text())


def test_golden_keyed_users_read_as_recorded(tmp_path: Path) -> None:
    """[M9] [C4] [USR-10] [USR-11] Winners of each user; what was deleted may come back."""
    shutil.copytree(KEYED / "table", tmp_path / "t")
    table: Any = strandline.open_table(tmp_path / "t")
    columns = ["at", "id", "text", "_seq"]

    found = {u: table.user(u).scan(columns).to_arrow().to_pylist() for u in table.users()}

    assert found == KEYED_ROWS
    assert set(table.manifest.reader_features) == {"keyed", "tombstones", "user_scope"}
    assert table.user("ada").exists([0, 1, 2, 3]).tolist() == [True, True, False, False]
    assert table.verify(deep=True).ok
    for file in (tmp_path / "t").rglob("*.json.lz4"):
        kind = "user_manifest" if "/users/" in file.as_posix() else "manifest"
        document = codec.decode_document(file.read_bytes(), file.name)
        validator(kind, strict=True).validate(document)


@pytest.mark.parametrize("user", KEYED_ROWS)
def test_a_stranger_reads_a_golden_keyed_user(user: str) -> None:
    """[X6] [USR-10] [KEY-3] The text is enough for winners and deletes of one user."""
    rows = by_the_book(KEYED / "table", "--user", user)

    found = [(row["text"], int(row["_seq"])) for row in rows]
    assert found == [(row["text"], row["_seq"]) for row in KEYED_ROWS[user]]


def test_a_stranger_takes_no_users_table_for_an_empty_one() -> None:
    """[USR-1] [VER-1] Who knows nothing of users refuses the table; nobody's chain is an error."""
    assert by_the_book(INBOX)[0]["error"] == "unsupported"
    assert by_the_book(INBOX, "--user", "nobody")[0]["error"] == "table_not_found"


def test_the_golden_answer_is_shown_and_goes_on(root: strandline.Catalog) -> None:
    """[E13] [MAT-1] [MAT-2] The kept state and what came behind it make the answer."""
    sales = root.open_table("shop.sales")
    assert sales.remembered() == ["by shop"]
    before = len(list((SYSTEMS / "catalog").rglob("*.frame")))
    assert sales.show("by shop").to_pylist() == EXPECTED["answer"]

    sales.refresh_query("by shop")

    assert sales.show("by shop").to_pylist() == EXPECTED["answer"]
    assert before >= 1


def test_golden_documents_fit_their_schemas() -> None:
    """[CAT-5] [USR-2] [USR-4] [MAT-3] Every document of every kind, strictly."""
    kinds: dict[str, int] = {}
    for file in (SYSTEMS / "catalog").rglob("*.json.lz4"):
        document = codec.decode_document(file.read_bytes(), file.name)
        place = file.relative_to(SYSTEMS / "catalog").as_posix()
        if place.startswith("_catalog/namespaces"):
            kind = "catalog_namespace"
        elif place.startswith("_catalog/"):
            kind = "catalog_name"
        elif "/users/" in place:
            kind = "user_manifest"
        elif "/materializations/" in place:
            kind = "materialization"
        else:
            kind = "manifest"
        validator(kind, strict=kind not in ("catalog_namespace", "materialization")).validate(
            document
        )
        kinds[kind] = kinds.get(kind, 0) + 1
    for file in (SYSTEMS / "catalog").glob("*/data/*/_strandline/user_names/*/*"):
        validator("user_card", strict=True).validate(json.loads(file.read_bytes()))
        kinds["user_card"] = kinds.get("user_card", 0) + 1
    assert kinds.pop("user_card") == len(EXPECTED["users"])
    assert set(kinds) == {
        *("catalog_namespace", "catalog_name", "user_manifest", "materialization", "manifest")
    }
