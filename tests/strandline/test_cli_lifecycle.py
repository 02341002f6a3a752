"""The verbs that end things: nothing is removed without `--yes`, and all speak JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import cli, cli_progress
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.windows import HOUR_MS


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A table with a row in each of six hours, long ago."""
    place = str(tmp_path / "t")
    table = strandline.create_table(
        place, {"at": "int64", "n": "int64"}, time_column="at", ttl="1h"
    )
    for n in range(6):
        table.append([{"at": 1_700_000_000_000 + n * HOUR_MS, "n": n}])
    return place


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command prints as JSON."""
    assert cli.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_removing_needs_a_yes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[X1] [C8] Expire, versions, vacuum and purge only tell, until they are told."""
    table = strandline.open_table(url)

    assert run(capsys, "expire", url)["rows_hidden"] == 6
    for verb in ("expire-versions", "vacuum", "purge"):
        assert run(capsys, verb, url)["dry_run"] is True
    assert table.scan().count() == 6
    assert cli.main(["vacuum", url]) == 0
    assert "--yes does it" in capsys.readouterr().out

    run(capsys, "expire", url, "--yes")
    assert table.scan().count() == 0
    assert run(capsys, "expire", url, "--yes", "--grace", "0")["files_removed"] == 6


@pytest.mark.parametrize("command", [["expire", "--yes"], ["maintain"]])
def test_a_share_that_may_not_go(
    url: str, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """[X1] The cap holds for the command and for the job that runs every night."""
    verb, *options = command
    table = strandline.open_table(url)

    assert cli.main([verb, url, *options, "--max-share", "0.5"]) == 1
    assert "50.0% is allowed" in capsys.readouterr().err
    assert cli.main([verb, url, *options, "--max-share", "2"]) == 1
    assert table.refresh().scan().count() == 6
    with pytest.raises(InvalidInput, match="max_share"):
        table.maintain(max_share="all")  # type: ignore[arg-type] # what is tried
    assert cli.main([verb, url, *options, "--max-share", "1"]) == 0
    assert strandline.open_table(url).scan().count() == 0


def test_tags_rollback_trim_and_settings(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[C9] [C13] [O4] The same verbs as in Python."""
    assert run(capsys, "tag", url, "three", "--at", "4")["tagged"] == 4
    assert run(capsys, "scan", url, "--version", "three", "--count")["rows"] == 3
    assert run(capsys, "tag", url) == [{"tag": "three", "version": 4}]
    run(capsys, "rollback", url, "three")
    assert strandline.open_table(url).scan().count() == 3
    run(capsys, "untag", url, "three")
    assert run(capsys, "trim", url, "2")["trim_seq"] == 2
    run(capsys, "set", url, "ttl=30d", "history=none", "delete_on_empty_secs=0")
    assert strandline.open_table(url).config.history_ms is None
    assert cli.main(["set", url, "shards=3"]) == 1


def test_maintain_says_what_it_did(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[X1] [C8] One command for a cron job."""
    done = run(capsys, "maintain", url)

    assert done["expire"]["rows_hidden"] == 6
    assert {"compact", "vacuum", "expire_versions", "dropped"} < set(done)
    assert cli.main(["maintain", url, "--bytes-per-s", "0"]) == 1
    assert "bytes_per_s must be" in capsys.readouterr().err
    assert cli.main(["maintain", url, "--bytes-per-s", "1000000"]) == 0


def test_what_was_mistyped_is_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """[E1] Also numbers of other scripts, which Python takes for digits."""
    assert cli.main(["set", url, "ttl"]) == 1
    assert "a setting is written NAME=VALUE" in capsys.readouterr().err
    assert cli.main(["set", url, "ttl=²"]) == 1
    assert "ttl is text such as" in capsys.readouterr().err
    assert cli.main(["rollback", url, "²"]) == 1
    assert "`tags` lists them" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="a datetime or milliseconds"):
        strandline.open_table(url).expire("yesterday")  # type: ignore[arg-type] # what is tried


def test_maintain_takes_a_catalog_and_one_table_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """[X1] [C8] All tables, each by its own settings; the exit code says that one failed."""
    catalog = strandline.Catalog(str(tmp_path))
    columns = {"at": "int64", "n": "int64"}
    for name in ("a", "b", "c"):
        table = catalog.create_table(f"n.{name}", columns, time_column="at", ttl="1h")
        for n in range(3):
            table.append([{"at": 1_700_000_000_000, "n": n}])
        if name == "c":
            table.set(ttl=None)
    assert run(capsys, "maintain", str(tmp_path), "--dry-run")[0]["error"] is None
    broken = Path(catalog.open_table("n.b").url, "_strandline/manifests")
    for manifest in broken.iterdir():
        manifest.write_bytes(b"garbage")

    assert cli.main(["maintain", str(tmp_path), "--json"]) == 1

    done = {line["name"]: line for line in json.loads(capsys.readouterr().out)}
    assert done["a"]["error"] is done["c"]["error"] is None
    assert "vacuum" in done["a"]["steps"]
    assert [done[name]["rows_hidden"] for name in "abc"] == [3, None, 0]
    assert [done[name]["segments_before"] for name in "abc"] == [0, None, 3]
    assert [done[name]["segments_after"] for name in "abc"] == [0, None, 1]
    assert [done[name]["objects_removed"] for name in "abc"] == [0, None, 0]
    assert "manifest" in done["b"]["error"]
    assert catalog.open_table("n.a").scan().count() == 0
    assert catalog.open_table("n.c").scan().count() == 3
    assert cli.main(["maintain", str(tmp_path / "nothing")]) == 1
    assert "there is no Strandline table" in capsys.readouterr().err


@pytest.mark.parametrize("installed", [True, False])
def test_bars_are_drawn_on_a_terminal_and_nowhere_else(
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    installed: bool,
) -> None:
    """[C8] With rich or without; programs and files are spared."""
    if not installed:
        monkeypatch.setattr(cli_progress, "find_spec", lambda _: None)
    assert cli.main(["maintain", url]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["compact", url, "--json"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["maintain", url]) == 0

    shown = capsys.readouterr().err
    for step in ("expire", "compact", "expire_versions", "vacuum"):
        assert step in shown
