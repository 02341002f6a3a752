"""Remembered queries, snapshots and stream tables from a shell."""

from __future__ import annotations

import io
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline import cli

if TYPE_CHECKING:
    from pathlib import Path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command prints as JSON."""
    assert cli.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says when it fails."""
    assert cli.main(list(arguments)) == 1
    return capsys.readouterr().err


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Sales of two shops."""
    place = str(tmp_path / "sales")
    table = strandline.create_table(
        place, {"at": "int64", "shop": "string", "amount": "int64"}, time_column="at"
    )
    table.append([{"at": n, "shop": "ab"[n % 2], "amount": n} for n in range(10)])
    return place


def test_a_query_is_remembered_shown_and_forgotten(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """[E13] The answer of now, with what was appended since."""
    said = ("--filter", "amount > 0", "--columns", "shop")
    sums = ("--aggregate", "n=count(*)", "--aggregate", "total=sum(amount)")
    query = run(capsys, "remember", url, "by shop", *said, *sums)["query"]
    assert query["aggregates"] == {"n": "count(*)", "total": "sum(amount)"}
    strandline.open_table(url).append([{"at": 11, "shop": "a", "amount": 100}])

    shown = run(capsys, "show", url, "by shop")

    assert shown == [{"shop": "a", "n": 5, "total": 120}, {"shop": "b", "n": 5, "total": 25}]
    assert run(capsys, "refresh", url, "by shop") == {"alias": "by shop", "next_seq": 11}
    assert cli.main(["refresh", url, "by shop"]) == 0
    assert capsys.readouterr().out == "up to date to sequence number 11\n"
    assert run(capsys, "remembered", url) == [{"alias": "by shop"}]
    assert cli.main(["show", url, "by shop", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "shop,n,total\na,5,120\nb,5,25\n"
    run(capsys, "remember", url, "newest", "--columns", "amount", "--keep-rows", "2")
    assert [row["amount"] for row in run(capsys, "show", url, "newest")] == [9, 100]
    run(capsys, "forget", url, "by shop")
    assert run(capsys, "remembered", url) == [{"alias": "newest"}]
    assert "by shop" in refused(capsys, "show", url, "by shop")
    assert "NAME=VALUE" in refused(capsys, "remember", url, "x", "--aggregate", "count(*)")


def test_a_range_is_exported_inspected_and_replayed_once(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """[E12] One file, verified; every row once, however often it is replayed."""
    file, copy = str(tmp_path / "sales.snap"), str(tmp_path / "copy")
    said = run(capsys, "export", url, file, "--start-seq", "2", "--end-ts", "7")
    assert (said["rows"], said["min_seq"], said["max_seq"], said["max_ts"]) == (6, 2, 7, 7)
    assert "exists already" in refused(capsys, "export", url, file)
    assert run(capsys, "inspect", file) == said
    strandline.create_table(copy, strandline.open_table(url).schema, time_column="at")

    assert run(capsys, "replay", copy, file)["rows"] == 6
    assert run(capsys, "replay", copy, file)["rows"] == 0

    assert strandline.open_table(copy).scan(["amount"]).to_arrow()["amount"].to_pylist() == [
        *range(2, 8)
    ]
    whole = (tmp_path / "sales.snap").read_bytes()
    (tmp_path / "sales.snap").write_bytes(whole[:-5])
    assert "record" in refused(capsys, "inspect", file)


def test_short_lived_rows_from_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[K5] [K7] What one command puts, the next one sees; rows that have expired are dropped."""
    url = str(tmp_path / "presence")
    schema = "id:int64,status:string,at:int64"
    made = ("--schema", schema, "--row-id", "id", "--ttl", "1h", "--time-column", "at")
    run(capsys, "stream", "create", url, *made)
    now = int(time.time() * 1000)
    rows = [{"id": n, "status": "on", "at": now - n} for n in range(3)]
    old = {"id": 9, "status": "old", "at": now - 7_200_000}
    lines = "\n".join(json.dumps(row) for row in [*rows, old])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))

    assert run(capsys, "stream", "put", url, "ada") == {"rows": 3, "dropped": 1}
    assert run(capsys, "stream", "delete", url, "ada", "1", "7") == {"deleted": 1}

    latest = run(capsys, "stream", "latest", url, "ada", "--columns", "id")
    assert latest == [{"id": 0}, {"id": 2}]
    assert run(capsys, "stream", "latest", url, "ada", "--limit", "1") == [rows[0]]
    assert run(capsys, "stream", "range", url, "ada", "--end-ts", str(now - 1)) == [rows[2]]
    assert run(capsys, "stream", "users", url) == [{"user": "ada"}]
    assert run(capsys, "stream", "expire", url)["windows_removed"] == 0
    assert "int64" in refused(capsys, "stream", "delete", url, "ada", "x")
    assert "there is no" in refused(capsys, "stream", "latest", str(tmp_path / "none"), "ada")
