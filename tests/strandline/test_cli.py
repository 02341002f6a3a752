"""The `strandline` command."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import strandline
from strandline import cli, cli_input, cli_output
from tests.edited import first_data_file, flip
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import S3Bucket

    Run = Callable[..., tuple[int, str, str]]

COLUMNS = "ts:timestamptz,country:string,amount:decimal(10,2),n:int32"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process: its exit code, what it printed, what it complained about."""

    def call(*arguments: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def answer(result: tuple[int, str, str]) -> Any:
    """The JSON that a command printed; it must have succeeded without a word of complaint."""
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.fixture
def table(tmp_path: Path) -> strandline.Table:
    """Two appends of ten rows."""
    made = strandline.create_table(tmp_path / "events", SCHEMA, time_column="ts", ttl="7d")
    made.append(events(0, 10))
    made.append(events(10, 10), properties={"source": "test"})
    return made


# --- create ------------------------------------------------------------------------------------


def test_create_makes_the_table_that_was_described(run: Run, tmp_path: Path) -> None:
    """Columns with commas in their types, a time column, a TTL and further options."""
    url = tmp_path / "t"
    facts = answer(
        run("create", url, "--schema", COLUMNS, "--time-column", "ts", "--ttl", "12h", "--json")
    )

    made = strandline.open_table(url)
    assert facts == {"url": str(url), "version": 1, "uuid": made.uuid}
    assert made.schema.field("amount").type == pa.decimal128(10, 2)
    assert made.config.ttl_ms == 12 * 3_600_000


def test_create_reads_a_schema_from_json_and_from_parquet(run: Run, tmp_path: Path) -> None:
    """Nested types, comments and columns that must not be null need more than one line."""
    described = tmp_path / "schema.json"
    described.write_text(
        json.dumps(
            [
                {"name": "id", "type": "int64", "nullable": False, "comment": "given by the shop"},
                {"name": "tags", "type": {"list": {"type": "string"}}},
            ]
        )
    )
    pq.write_table(events(0, 1), tmp_path / "rows.parquet")

    run("create", tmp_path / "a", "--schema", described)
    run("create", tmp_path / "b", "--schema", tmp_path / "rows.parquet")

    first = strandline.open_table(tmp_path / "a").schema
    assert first.field("id").metadata == {b"comment": b"given by the shop"}
    assert not first.field("id").nullable
    assert first.field("tags").type == pa.list_(pa.field("element", pa.string()))
    assert strandline.open_table(tmp_path / "b").schema.names == SCHEMA.names


def test_create_twice_is_an_error_unless_told_otherwise(run: Run, tmp_path: Path) -> None:
    """An existing table is never replaced."""
    run("create", tmp_path / "t", "--schema", "n:int64")

    code, out, err = run("create", tmp_path / "t", "--schema", "n:int64")
    again, _, _ = run("create", tmp_path / "t", "--schema", "n:int64", "--exist-ok")

    assert (code, out, again) == (1, "", 0)
    assert err.startswith("strandline: there is a Strandline table")


@pytest.mark.parametrize("schema", ["n", "n:int63", "n:", ":int64", "n:int64,,m:int64", "_n:int64"])
def test_a_schema_that_cannot_be_meant_is_refused(run: Run, tmp_path: Path, schema: str) -> None:
    """One line that names the column or the part; nothing is created."""
    code, _, err = run("create", tmp_path / "t", "--schema", schema)

    assert code == 1
    assert err.startswith("strandline: ")
    assert "Traceback" not in err
    assert not (tmp_path / "t").exists()


# --- append ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream", "jsonl", "csv"])
def test_append_reads_every_format(run: Run, tmp_path: Path, kind: str) -> None:
    """The same rows, whatever file they come in."""
    rows = events(0, 5)
    source = strandline.create_table(tmp_path / "source", SCHEMA)
    source.append(rows)
    file = tmp_path / f"rows.{'arrow' if kind == 'stream' else kind}"
    if kind == "parquet":
        pq.write_table(rows, file)
    elif kind == "csv":
        pa_csv.write_csv(rows, file)
    elif kind == "jsonl":
        file.write_text(run("scan", source.url, "--format", "jsonl")[1])
    else:
        new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with pa.OSFile(str(file), "wb") as out, new(out, rows.schema) as writer:
            writer.write_table(rows)
    target = strandline.create_table(tmp_path / "target", SCHEMA)

    facts = answer(run("append", target.url, file, "--json"))

    assert facts == {
        "version": 2,
        "rows": 5,
        "first_seq": 0,
        "last_seq": 4,
        "duplicate": False,
        "dropped": 0,
        "superseded_by": None,
    }
    assert target.scan().to_arrow().equals(rows)


def test_what_scan_prints_append_reads(run: Run, tmp_path: Path) -> None:
    """[C12] JSON lines carry every type there and back: decimals, bytes, NaN, nested values."""
    schema = {
        "at": "timestamptz",
        "wall": "timestamp",
        "day": "date",
        "price": "decimal(38,6)",
        "score": "float64",
        "raw": "binary",
        "big": "int64",
        "many": pa.list_(pa.field("element", pa.timestamp("us", "UTC"))),
        "pair": pa.struct([("a", pa.decimal128(5, 2)), ("b", pa.binary())]),
        "names": pa.map_(pa.string(), pa.float64()),
    }
    moment = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
    first = strandline.create_table(tmp_path / "first", schema)
    first.append(
        [
            {
                "at": moment,
                "wall": moment.replace(tzinfo=None),
                "day": moment.date(),
                "price": Decimal("12345678901234567890.123456"),
                "score": float("nan"),
                "raw": b"\x00\xff",
                "big": 2**63 - 1,
                "many": [moment, None],
                "pair": {"a": Decimal("1.10"), "b": b"x"},
                "names": {"a": float("-inf"), "b": 0.1},
            },
            dict.fromkeys(schema),
        ]
    )
    second = strandline.create_table(tmp_path / "second", schema)

    _, lines, _ = run("scan", first.url, "--format", "jsonl")
    answer(run("append", second.url, "--json", stdin=lines))

    kept = second.scan().to_arrow().to_pylist()
    assert repr(kept) == repr(first.scan().to_arrow().to_pylist())


def test_the_file_may_stand_behind_options(
    run: Run, table: strandline.Table, tmp_path: Path
) -> None:
    """The order of words decides nothing; a word too many is still refused."""
    file = tmp_path / "rows.csv"
    file.write_text("n\n5\n")

    code, said, _ = run("append", table.url, "--format", "csv", str(file))
    too_many = ("append", table.url, str(file), "--format", "csv", "another.csv")

    assert (code, said) == (0, "appended 1 rows as 20 to 20 in version 4\n")
    assert run(*too_many)[0] == 2
    assert table.tail().next_seq == 21


def test_a_batch_that_is_sent_again_is_appended_once(run: Run, table: strandline.Table) -> None:
    """[C1] --writer-id and --batch make a retry safe, and the answer says what happened."""
    line = '{"n": 99}\n'

    first = run("append", table.url, "--writer-id", "w", "--batch", "7", stdin=line)
    second = run("append", table.url, "--writer-id", "w", "--batch", "7", stdin=line)
    older = run("append", table.url, "--writer-id", "w", "--batch", "6", stdin=line)

    assert first[:2] == (0, "appended 1 rows as 20 to 20 in version 4\n")
    assert second[1].startswith("nothing written: version 4 holds this batch already")
    assert older[:2] == (0, "nothing written: this writer's newest batch is 7 already\n")
    assert table.tail().next_seq == 21


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 1 is not valid JSON"),
        ("[1]", "line 1 is not a JSON object"),
        ('{"nn": 1}', "did you mean 'n'"),
        ('{"n": 1.5}', "field 'n'"),
        ('{"n": "1"}', "field 'n'"),
        ('{"ts": "yesterday"}', "'yesterday' cannot be read as timestamptz"),
        ('{"ts": "2024-01-01T00:00:00"}', "has no time zone"),
        ("[" * 100_000, "line 1 is not valid JSON"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(
    run: Run, table: strandline.Table, line: str, complaint: str
) -> None:
    """[E1] Row, field and reason on one line."""
    code, out, err = run("append", table.url, stdin=line)

    assert (code, out) == (1, "")
    assert err.startswith("strandline: ")
    assert complaint in err
    assert table.tail().version == 3


def test_a_file_that_cannot_be_read_is_named(
    run: Run, table: strandline.Table, tmp_path: Path
) -> None:
    """A missing file, an unknown ending, and bytes that are no Parquet."""
    (tmp_path / "odd.xyz").write_text("")
    (tmp_path / "not.parquet").write_text("hello")

    assert "No such file" in run("append", table.url, tmp_path / "gone.csv")[2]
    assert "--format" in run("append", table.url, tmp_path / "odd.xyz")[2]
    assert "cannot be read as parquet" in run("append", table.url, tmp_path / "not.parquet")[2]


# --- scan --------------------------------------------------------------------------------------


def test_scan_filters_bounds_and_chooses_columns(run: Run, table: strandline.Table) -> None:
    """The arguments mean what they mean in Python."""
    wanted = ("--columns", "_seq,n", "--filter", "amount > 1.0", "--start-seq", "3")
    more = ("--end-seq", "12", "--limit", "2", "--start-ts", "2023-11-14T22:13:20")

    assert answer(run("scan", table.url, *wanted, *more, "--json")) == [
        {"_seq": 5, "n": 5},
        {"_seq": 6, "n": 6},
    ]


def test_scan_reads_an_older_version(run: Run, table: strandline.Table) -> None:
    """[C2] By number, and by time as `history` prints it."""
    times = [row["committed_at"] for row in answer(run("history", table.url, "--json"))]

    assert answer(run("scan", table.url, "--count", "--version", "2", "--json")) == {"rows": 10}
    assert answer(run("scan", table.url, "--count", "--as-of", times[1], "--json")) == {"rows": 10}
    assert answer(run("scan", table.url, "--count", "--as-of", times[0], "--json")) == {"rows": 20}


def test_scan_prints_tables_csv_and_arrow(
    table: strandline.Table, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Text for people, CSV for spreadsheets, Arrow for programs."""
    limited = ("scan", table.url, "--columns", "user,n", "--limit", "2")
    shown = "user    n\n------  -\nuser-0  0\nuser-1  1\n2 rows\n"

    cli.main([*limited])
    assert capfdbinary.readouterr().out.decode() == shown
    cli.main([*limited, "--format", "csv"])
    assert capfdbinary.readouterr().out.decode() == "user,n\nuser-0,0\nuser-1,1\n"
    cli.main([*limited, "--format", "arrow"])
    stream = pa.ipc.open_stream(capfdbinary.readouterr().out)
    assert stream.read_all().column("n").to_pylist() == [0, 1]


def test_a_long_table_is_cut_and_says_so(
    run: Run, table: strandline.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody wants a million rows on a screen by accident; with --limit they come."""
    monkeypatch.setattr(cli_output, "ROWS_ON_SCREEN", 3)

    assert "these are the first 3 rows" in run("scan", table.url)[1]
    assert run("scan", table.url, "--limit", "20")[1].endswith("\n20 rows\n")


def test_an_empty_answer_is_still_json(run: Run, table: strandline.Table) -> None:
    """`[]`, and a header without rows."""
    assert answer(run("scan", table.url, "--filter", "n < 0", "--json")) == []
    assert run("scan", table.url, "--filter", "n < 0", "--columns", "n")[1] == "n\n-\n0 rows\n"


def test_scan_explains_its_plan(run: Run, table: strandline.Table) -> None:
    """What would be read, without reading it."""
    _, out, _ = run("scan", table.url, "--filter", "n = 3", "--explain")

    assert "segments: 1 of 2 may match" in out
    assert (
        "segments: 1 of 2 may match"
        in answer(run("scan", table.url, "--filter", "n = 3", "--explain", "--json"))["plan"]
    )


def test_control_characters_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    """Data written by strangers cannot move the cursor of whoever reads it."""
    made = strandline.create_table(tmp_path / "t", {"text": "string"})
    made.append([{"text": "\x1b[2Jgone\r\n"}])

    assert "\x1b" not in run("scan", made.url)[1]


def test_a_terminal_gets_a_drawn_table(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rich; and what looks like its markup is printed as it is."""
    pytest.importorskip("rich")
    made = strandline.create_table(tmp_path / "t", {"[red]name": "string"})
    made.append([{"[red]name": "[bold]x[/bold]"}])
    monkeypatch.setattr(cli_output, "_on_terminal", lambda: True)

    _, out, _ = run("scan", made.url)

    assert "┃ [red]name" in out
    assert "│ [bold]x[/bold]" in out


# --- everything else ---------------------------------------------------------------------------


def test_facts_about_a_table(run: Run, table: strandline.Table) -> None:
    """[C6, O3] tail, history, files, schema and describe, each as JSON."""
    assert answer(run("tail", table.url, "--json"))["next_seq"] == 20
    history = answer(run("history", table.url, "--json"))
    assert [row["operation"] for row in history] == ["append", "append", "create"]
    assert history[0]["properties"] == {"source": "test"}
    assert len(answer(run("history", table.url, "--limit", "1", "--json"))) == 1
    files = answer(run("files", table.url, "--json"))
    assert [row["row_count"] for row in files] == [10, 10]
    columns = answer(run("schema", table.url, "--json"))
    assert (columns[0]["name"], columns[0]["type"]) == ("ts", "timestamptz")
    facts = answer(run("describe", table.url, "--json"))
    assert (facts["rows"], facts["files"], facts["time_column"]) == (20, 2, "ts")
    assert facts == answer(run("info", table.url, "--json"))


@pytest.mark.parametrize("verb", ["tail", "history", "files", "schema", "describe"])
def test_facts_as_text(run: Run, table: strandline.Table, verb: str) -> None:
    """Without --json, lines for people."""
    code, out, err = run(verb, table.url)

    assert (code, err) == (0, "")
    assert out.count("\n") >= 2


def test_evolve_changes_the_columns(run: Run, table: strandline.Table) -> None:
    """[C3] Add, rename, drop, widen, reorder and comment in one commit."""
    run("evolve", table.url, "--add", "small:int8,price:decimal(10,2)")

    changes = ("--rename", "user=who", "--drop", "price", "--widen", "small:int32")
    rows = answer(
        run("evolve", table.url, *changes, "--reorder", "n,ts", "--comment", "n=a=b", "--json")
    )

    assert [row["name"] for row in rows] == ["n", "ts", "who", "amount", "small"]
    assert rows[0]["comment"] == "a=b"
    assert rows[-1]["type"] == "int32"
    assert "was asked to change nothing" in run("evolve", table.url)[2]


def test_doctor_and_verify_end_with_1_if_something_is_wrong(
    run: Run, table: strandline.Table, tmp_path: Path
) -> None:
    """Scripts go by the exit code, people by the text."""
    assert answer(run("doctor", table.url, "--json"))["ok"]
    assert answer(run("verify", table.url, "--deep", "--json"))["problems"] == []
    assert "0 problems" in run("verify", table.url)[1]
    assert run("doctor", tmp_path / "new", "--read-only")[0] == 0

    file = first_data_file(table)
    flip(file, file.stat().st_size - 20)

    assert run("verify", table.url)[0] == 1
    assert run("doctor", "ftp://host/table")[0] == 1


def test_version_names_the_libraries(run: Run) -> None:
    """The first thing that anybody asks in a bug report."""
    facts = answer(run("version", "--json"))

    assert facts["strandline"] == strandline.__version__
    assert facts["pyarrow"] == pa.__version__


# --- errors and pipes --------------------------------------------------------------------------


def test_errors_are_one_line_and_debug_shows_the_rest(run: Run, tmp_path: Path) -> None:
    """Exit code 1 for what failed, 2 for what was not understood."""
    code, out, err = run("tail", tmp_path / "nothing")
    assert (code, out) == (1, "")
    assert err.startswith("strandline: there is no Strandline table at ")
    assert err.count("\n") == 1
    with pytest.raises(strandline.TableNotFound):
        run("tail", tmp_path / "nothing", "--debug")
    assert run("scan")[0] == 2
    assert run("fly", tmp_path)[0] == 2
    assert "--json and --format" in run("scan", tmp_path, "--json", "--format", "csv")[2]


def test_an_unexpected_error_is_still_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours is named as one, without a screen full of traceback."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(strandline, "open_table", broken)

    assert run("tail", tmp_path) == (
        1,
        "",
        "strandline: unexpected ZeroDivisionError: oops (--debug shows where)\n",
    )


def test_a_closed_pipe_is_no_error(table: strandline.Table) -> None:
    """`strandline scan … | head` ends quietly."""
    command = [sys.executable, "-m", "strandline.cli", "scan", table.url, "--format", "jsonl"]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(writer)

    assert (ended.returncode, ended.stderr) == (141, "")


# --- storage options ---------------------------------------------------------------------------


@pytest.mark.s3
def test_storage_options_reach_the_store_and_stay_secret(
    run: Run, s3_bucket: S3Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """[C10] From a file and from arguments, nested keys too; no output repeats a secret."""
    caplog.set_level(logging.DEBUG)
    options = dict(s3_bucket.storage_options)
    secret = options.pop("secret")
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"secret": secret, "endpoint_url": s3_bucket.endpoint}))
    given = ["--storage-options-file", file, "--storage-option", f"key={options['key']}"]
    given += ["--storage-option", "client_kwargs.region_name=us-east-1"]

    results = [
        run("create", s3_bucket.url, "--schema", "n:int64", *given),
        run("append", s3_bucket.url, *given, stdin='{"n": 1}'),
        run("scan", s3_bucket.url, "--json", *given),
        run("doctor", s3_bucket.url, *given),
        run("verify", s3_bucket.url, "--deep", *given),
        run("append", s3_bucket.url, *given, stdin='{"m": 1}'),
    ]

    assert [code for code, _, _ in results] == [0, 0, 0, 0, 0, 1]
    assert json.loads(results[2][1]) == [{"n": 1}]
    for text in (*(out + err for _, out, err in results), caplog.text):
        assert secret not in text


@pytest.mark.parametrize(
    "given",
    [
        ["--storage-option", "hunter2-is-my-secret"],
        ["--storage-option", '{"secret": "hunter2-is-my-secret"'],
        ["--storage-option", "a=[hunter2-is-my-secret"],
        ["--storage-option", "a=hunter2-is-my-secret", "--storage-option", "a.b=1"],
        ["--storage-options-file", "FILE"],
    ],
)
def test_options_that_make_no_sense_are_not_repeated(
    run: Run, tmp_path: Path, given: list[str]
) -> None:
    """[C10] A slip in a command with a secret does not print the secret."""
    file = tmp_path / "options.json"
    file.write_text('{"secret": "hunter2-is-my-secret",}')

    code, out, err = run("tail", tmp_path, *[str(file) if g == "FILE" else g for g in given])

    assert code == 1
    assert "hunter2" not in out + err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["anon=true"], {"anon": True}),
        (["key=0123"], {"key": "0123"}),
        (["secret=a=b"], {"secret": "a=b"}),
        (
            ["client_kwargs.region_name=x", "client_kwargs.verify=false"],
            {"client_kwargs": {"region_name": "x", "verify": False}},
        ),
        (
            ['config_kwargs={"retries": {"total_max_attempts": 2}}'],
            {"config_kwargs": {"retries": {"total_max_attempts": 2}}},
        ),
    ],
)
def test_storage_options_become_what_they_look_like(
    given: list[str], expected: dict[str, Any]
) -> None:
    """Flags and objects are JSON; everything else stays text, because a key may be all digits."""
    assert cli_input.storage_options(given, None) == expected


def test_the_documents_name_every_verb(run: Run) -> None:
    """Who reads README.md and docs/cli.md learns of all there is."""
    code, told, _ = run("--help")
    verbs = re.findall(r"^    ([a-z-]+)(?: \(\w+\))?(?:  |$)", told, re.MULTILINE)
    root = Path(__file__).parents[2]
    texts = [(root / name).read_text(encoding="utf-8") for name in ("README.md", "docs/cli.md")]
    readme = texts[0] + (root / "docs/lifecycle.md").read_text(encoding="utf-8")

    assert code == 0
    assert len(verbs) > 20
    for text in (readme, texts[1]):
        assert [verb for verb in verbs if not re.search(rf"\b{verb}\b", text)] == []
