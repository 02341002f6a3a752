"""The commands that replace what is in a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.cli import main
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from pathlib import Path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints as JSON."""
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A table of four appends."""
    place = str(tmp_path / "table")
    table = strandline.create_table(place, SCHEMA, time_column="ts")
    for first in range(0, 40, 10):
        table.append(events(first, 10))
    return place


def test_compact_tells_what_it_did(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[C5] As JSON and in words; a dry run changes nothing."""
    assert told(capsys, "compact", url, "--dry-run")["segments_before"] == 4
    report = told(capsys, "compact", url, "--sort-by", "user,n", "--bytes-per-s", "100000000")
    assert (report["runs"], report["segments_after"], report["rows"]) == (1, 1, 40)
    assert main(["compact", url, "--min-segments", "3"]) == 0
    assert "0 segments" in capsys.readouterr().out
    assert strandline.open_table(url).files().num_rows == 1


def test_delete_takes_a_filter(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[C4] It says how many rows went; without a filter it is a usage error."""
    assert told(capsys, "delete", url, "--filter", "n < 5")["rows"] == 5
    assert main(["delete", url, "--filter", "n >= 10 AND n < 25"]) == 0
    assert "15 rows deleted" in capsys.readouterr().out
    assert main(["delete", url, "--filter", "n < 5"]) == 0
    assert "no row matches" in capsys.readouterr().out
    assert main(["delete", url, "--filter", "nothing = 1"]) == 1
    assert strandline.open_table(url).scan().count() == 20


def test_overwrite_takes_a_file(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """[C2] The rows of the file, and no others; a batch once."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n')
    words = ("overwrite", url, str(file), "--writer-id", "job", "--batch", "1")
    assert told(capsys, *words)["rows"] == 2
    assert told(capsys, *words)["duplicate"]
    assert main([*words]) == 0
    assert "already" in capsys.readouterr().out
    assert main(["overwrite", url, str(file)]) == 0
    assert "2 rows and no others" in capsys.readouterr().out
    assert strandline.open_table(url).scan(["n"]).to_arrow().column("n").to_pylist() == [1, 2]


def test_keys_are_replaced_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[C4] Rows and keys from files, once for each batch; what does not fit is named."""
    place, rows, keys = (str(tmp_path / name) for name in ("t", "rows.jsonl", "keys.csv"))
    strandline.create_table(place, {"id": "int64", "v": "string"}, primary_key="id")
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    (tmp_path / "keys.csv").write_text("id\n1\n7\n")
    assert told(capsys, "upsert", place, rows)["rows"] == 2
    assert main(["upsert", place, rows]) == 0
    assert "appended 2 rows as 2 to 3" in capsys.readouterr().out
    for duplicate in (False, True):
        done = told(capsys, "delete", place, "--keys", keys, "--writer-id", "w", "--batch", "1")
        assert (done["rows"], done["duplicate"]) == (2, duplicate)
    table = strandline.open_table(place)
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": "b"}]
    assert main(["delete", place, "--keys", rows]) == 0
    assert "2 keys deleted in version 5" in capsys.readouterr().out
    assert table.scan().count() == 0
    (tmp_path / "keys.csv").write_text("v\n1\n")
    plain = str(tmp_path / "plain")
    strandline.create_table(plain, {"id": "int64"})
    for words, said in (
        (["delete", place, "--keys", keys], "no column 'id'"),
        (["delete", place, "--filter", "id = 1", "--batch", "3"], "--batch goes with --keys"),
        (["delete", plain, "--keys", rows], "no primary key"),
        (["upsert", plain, rows], "no primary key"),
    ):
        assert main(words) == 1
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["delete", place])
