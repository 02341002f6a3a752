"""The conformance kit accepts a right reader and notices a wrong one."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.format_spec.conformance import runner
from strandline.format_spec.conformance.__main__ import main
from strandline.format_spec.conformance.runner import Case, judge, load_cases, run_case
from strandline.tableformat.errors import (
    CorruptTable,
    MissingFile,
    StrandlineError,
    TableNotFound,
    UnsupportedFormat,
    VersionNotFound,
)
from tests.format_spec.places import CONFORMANCE, GOLDEN, REFERENCE_READER

CASES = load_cases()
BROKEN = Path(__file__).parent / "broken_reader.py"
ERRORS: dict[str, type[StrandlineError]] = {
    "corrupt": CorruptTable,
    "missing_file": MissingFile,
    "table_not_found": TableNotFound,
    "unsupported": UnsupportedFormat,
    "version_not_found": VersionNotFound,
}


def command(script: Path) -> str:
    """How the kit calls a reader that is a Python script."""
    return f"{sys.executable} {script} {{table}} {{version}}"


def case(name: str) -> Case:
    """A case by its name."""
    return next(case for case in CASES if case.name == name)


# --- the reference reader -----------------------------------------------------------------------


def test_the_reference_reader_imports_nothing_of_ours() -> None:
    """[X6] What it knows, it knows from SPEC.md: lz4, xxhash and pyarrow do the rest."""
    tree = ast.parse(REFERENCE_READER.read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert imported - sys.stdlib_module_names == {"lz4", "pyarrow", "xxhash"}
    assert "importlib" not in imported


def test_the_reference_reader_passes_every_case() -> None:
    """[X6] [M10] Run as another program, it gives all recorded rows and refuses what it must."""
    script = (
        "import json, runpy, sys, io, contextlib\n"
        "reader = runpy.run_path(sys.argv[1])\n"
        "for line in sys.stdin:\n"
        "    sys.argv = ['reader', *json.loads(line)]\n"
        "    out = io.StringIO()\n"
        "    with contextlib.redirect_stdout(out):\n"
        "        code = reader['main']()\n"
        "    print(json.dumps([code, out.getvalue()]))\n"
        "assert not [name for name in sys.modules if name.startswith('strandline')]\n"
    )
    asked = [[str(c.table), *([] if c.version is None else [str(c.version)])] for c in CASES]

    # One process for all cases: starting pyarrow eighty times would take a minute.
    done = subprocess.run(
        [sys.executable, "-c", script, str(REFERENCE_READER)],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = {
        case.name: reason
        for case, (code, text) in zip(CASES, answers, strict=True)
        if (reason := judge(case, code, [json.loads(line) for line in text.splitlines()]))
    }
    assert wrong == {}


# --- the library --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile", [case for case in CASES if case.error], ids=lambda case: str(case.name)
)
def test_the_library_refuses_what_must_be_refused(hostile: Case) -> None:
    """[X4] Damaged and hostile tables are a clear error of the right kind, and give no rows."""
    assert hostile.error is not None
    wanted = ERRORS[hostile.error]

    with pytest.raises(StrandlineError) as raised:
        strandline.open_table(hostile.table, version=hostile.version).scan(
            columns=["_seq", "_ts", "n"]
        ).to_arrow()

    assert type(raised.value) is wanted
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "name",
    [
        "beyond_the_tail",
        "listed_twice",
        "broken_history",
        "removed_path_escapes",
        "footer_does_not_fit",
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused_when_it_is_opened(name: str) -> None:
    """[MAN-4] [MAN-5] [MAN-6] [HIS-2] [SEG-6] A writer that never scans notices it too."""
    with pytest.raises(CorruptTable):
        strandline.open_table(case(name).table)


def test_a_page_beyond_the_tail_is_refused_for_that_reason() -> None:
    """[RD-4] Nothing else about the segment is wrong."""
    with pytest.raises(CorruptTable, match="beyond the table's tail"):
        strandline.open_table(case("page_beyond_the_tail").table).scan().to_arrow()


# --- the runner ---------------------------------------------------------------------------------


def test_the_runner_passes_the_reference_reader(capsys: pytest.CaptureFixture[str]) -> None:
    """[X6] As a user runs it: a command, a table of results, exit code 0."""
    code = main(["--reader", command(REFERENCE_READER), "--only", "v1_single_append"])

    printed = capsys.readouterr().out
    assert code == 0
    assert printed.endswith("2 of 2 cases passed\n")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("v1_single_append", "'ts'"),
        ("v1_pages", "rows instead of 45"),
        ("v1_floor_and_trim", "rows instead of"),
        ("unknown_reader_feature", "accepted, with 3 rows"),
        ("dense_with_gaps", "accepted"),
    ],
)
def test_the_runner_notices_a_broken_reader(name: str, reason: str) -> None:
    """[X6] Rows that are wrong, missing or should have been refused fail the case."""
    result = run_case(case(name), command(BROKEN))

    assert result.reason is not None
    assert reason in result.reason


def test_a_failed_case_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One wrong case is enough for exit code 1, and its line says what was wrong."""
    code = main(["--reader", command(BROKEN), "--only", "unknown_reader_feature"])

    assert code == 1
    assert "FAIL  unknown_reader_feature  accepted" in capsys.readouterr().out


def test_no_case_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that matches nothing must not look like a passed run."""
    assert main(["--reader", "true", "--only", "no such case"]) == 1
    assert "0 of 0" in capsys.readouterr().out


def test_missing_cases_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An installed package has no tables; the error says where they are."""
    with pytest.raises(SystemExit):
        main(["--reader", "true", "--cases", str(tmp_path / "cases.json")])

    assert "part of the repository" in capsys.readouterr().err


def test_a_reader_that_does_not_start_fails() -> None:
    """A wrong command is a failed case, not a crash of the runner."""
    result = run_case(CASES[0], "/no/such/reader {table}")

    assert result.reason is not None
    assert "did not start" in result.reason


def answers(name: str) -> list[Any]:
    """The right lines for a golden table."""
    return list(json.loads((GOLDEN / name / "expected.json").read_text())["rows"])


def test_small_differences_are_noticed() -> None:
    """A changed digit, sign, order or null, a missing row or column: each is a reason."""
    wanted = case("v1_worked_example")
    right = answers("v1_worked_example")

    assert judge(wanted, 0, right) is None
    assert judge(wanted, 1, right) is not None
    assert judge(wanted, 0, right[:-1]) == "4 rows instead of 5"
    assert judge(wanted, 0, right[::-1]) is not None
    for column, value in (("x", "0.0"), ("x", "-0"), ("name", None), ("_ts", "0")):
        changed = [dict(row) for row in right]
        changed[3][column] = value
        assert (judge(wanted, 0, changed) is None) == ((column, value) == ("x", "-0"))
    del right[2]["name"]
    assert judge(wanted, 0, right) == "row 2: column 'name' is missing"


def test_the_kind_of_an_error_may_be_left_out_but_not_be_wrong() -> None:
    """A reader that only fails passes; one that names the wrong kind does not."""
    wanted = case("missing_segment")

    assert judge(wanted, 2, []) is None
    assert judge(wanted, 2, [{"error": "missing_file"}]) is None
    assert judge(wanted, 2, [{"error": "corrupt"}]) is not None


def test_float32_may_be_printed_short_or_long() -> None:
    """0.1 and 0.10000000149011612 are one float32, and two float64."""
    assert runner._same("float32", "0.1", "0.10000000149011612")  # noqa: SLF001
    assert not runner._same("float64", "0.1", "0.10000000149011612")  # noqa: SLF001
    assert runner._same("float64", "NaN", "NaN")  # noqa: SLF001
    assert not runner._same("float64", None, "NaN")  # noqa: SLF001


def test_every_stored_table_is_a_case() -> None:
    """No golden or hostile table lies there unused, and no name is used twice."""
    used = {case.table.resolve() for case in CASES}
    stored = [*GOLDEN.glob("v*_*/table"), *(CONFORMANCE / "tables").iterdir()]

    assert [table for table in stored if table.resolve() not in used] == []
    assert len({case.name for case in CASES}) == len(CASES)


def test_cases_without_an_answer_are_refused() -> None:
    """A case has rows or an error, and the error is a known one."""
    with pytest.raises(ValueError, match="one of them"):
        Case(name="x", shows="", table=GOLDEN)
    with pytest.raises(ValueError, match=re.escape("'odd' is not one of")):
        Case(name="x", shows="", table=GOLDEN, error="odd")
