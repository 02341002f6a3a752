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
