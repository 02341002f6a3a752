"""`strandline recover`: what a writer that is gone left in its log, committed once."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
import xxhash

import strandline
from strandline import cli
from tests.tables import Place, events, memory_url, numbers_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> strandline.Table:
    """An empty table on disk."""
    return Place(str(tmp_path / "table")).create()


def _crash(writer: strandline.Writer) -> None:
    """Leave a writer as a crash would: nothing more is committed, its log stays."""

    def crash(*_: Any) -> None:
        raise strandline.StrandlineError("a crash")

    writer._committer.commit = crash  # type: ignore[assignment]  # noqa: SLF001 - no public way
    writer.close()


def _left_behind(table: strandline.Table, wal: Any) -> None:
    """Three committed records, and two that are only in the log."""
    writer = table.writer("p", wal=wal, flush_age="1h")
    for n in range(3):
        writer.append(events(n, 1))
    writer.flush()
    writer.append(events(3, 1))
    writer.append(events(4, 6))
    _crash(writer)


@pytest.mark.parametrize("kind", ["folder", "objects"])
def test_recover_looks_first_and_then_commits_once(
    table: strandline.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """[E2] A dry run changes nothing; the second recovery finds nothing."""
    wal = str(tmp_path / "wal") if kind == "folder" else memory_url()
    _left_behind(table, wal)
    command = ["recover", table.url, "--writer-id", "p", "--wal", wal]

    assert cli.main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would commit 2 records with 7 rows; ")
    assert numbers_in(table) == [0, 1, 2]
    assert cli.main([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["records"], facts["rows"], facts["dry_run"]) == (2, 7, False)
    assert cli.main(command) == 0

    assert capsys.readouterr().out == "nothing to recover: the log holds no records\n"
    assert numbers_in(table) == list(range(10))


def test_a_log_in_use_is_left_alone(
    table: strandline.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes never share a log; the message says what to do."""
    with table.writer("p", wal=tmp_path / "wal"):
        code = cli.main(["recover", table.url, "--writer-id", "p", "--wal", str(tmp_path / "wal")])

    assert code == 1
    assert "Close the other one" in capsys.readouterr().err


def test_a_lost_position_is_asked_for(
    table: strandline.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """[E2] Without the table's word nothing is replayed; with the user's it is, once."""
    wal = tmp_path / "wal"
    _left_behind(table, wal)
    other = Place(str(tmp_path / "other")).create()
    for file in wal.iterdir():  # the same records, for a table that has never heard of them
        data = file.read_bytes()
        file.write_bytes(_for_table(data, table.uuid, other.uuid))
    command = ["recover", other.url, "--writer-id", "p", "--wal", str(wal)]

    assert cli.main(command) == 1
    told = capsys.readouterr().err
    assert "look which rows arrived" in told
    assert "committed_up_to" in told
    assert numbers_in(other) == []
    assert cli.main([*command, "--committed-up-to", "4"]) == 0

    assert numbers_in(other) == [4, 5, 6, 7, 8, 9]


def _for_table(data: bytes, old: str, new: str) -> bytes:
    """A log file with another table's uuid in its header, checksum included."""
    head = struct.Struct("<8sIQ")
    magic, length, _ = head.unpack_from(data)
    text = data[head.size : head.size + length].replace(old.encode(), new.encode())
    checksum = xxhash.xxh64_intdigest(text)
    return head.pack(magic, len(text), checksum) + text + data[head.size + length :]


def test_looking_for_a_log_that_never_was_makes_nothing(
    table: strandline.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error in --wal leaves no folder behind, and is not told as an empty log."""
    assert table.recover("p", tmp_path / "nowhere") == strandline.Recovered()
    assert cli.main(["recover", table.url, "--wal", str(tmp_path / "nowhere")]) == 0
    assert capsys.readouterr().out == "nothing to recover: there is no such log\n"
    assert not (tmp_path / "nowhere").exists()

    (tmp_path / "empty").mkdir()
    assert table.recover("p", tmp_path / "empty").log == str(tmp_path / "empty")


def test_a_fenced_table_wants_its_token(table: strandline.Table, tmp_path: Path) -> None:
    """[O8] Recovery is a commit like any other."""
    _left_behind(table, tmp_path / "wal")
    table.fence("epoch-2")
    with pytest.raises(strandline.Fenced):
        table.recover("p", tmp_path / "wal")

    assert table.recover("p", tmp_path / "wal", fence="epoch-2").rows == 7
    with pytest.raises(strandline.InvalidInput, match="wal has no option 'folder'"):
        table.recover("p", {"folder": "x"})
