"""Running a reader, as a command in any language, over all conformance cases."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.format_spec.conformance.rows import canonical

DEFAULT_CASES: Final = Path(__file__).parent / "cases.json"
ERRORS: Final = ("corrupt", "missing_file", "table_not_found", "unsupported", "version_not_found")
HIDDEN: Final = ("_seq", "_ts", "_window")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One table, one version of it, and what a reader has to make of it."""

    name: str
    shows: str
    table: Path
    version: int | None = None
    """None: the head."""
    expected: Path | None = None
    """A file with columns and rows; None where the reader has to refuse."""
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.expected is None) == (self.error is None):
            raise ValueError(f"case {self.name}: give expected rows or an error, one of them")
        if self.error is not None and self.error not in ERRORS:
            raise ValueError(f"case {self.name}: {self.error!r} is not one of {ERRORS}")


@dataclass(frozen=True, slots=True)
class Result:
    """How a reader did in one case; no reason means that it passed."""

    case: Case
    reason: str | None = None


def load_cases(file: Path = DEFAULT_CASES) -> list[Case]:
    """The cases of a file; paths in it are relative to the file."""
    listed = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return [
        Case(
            name=case["name"],
            shows=case["shows"],
            table=file.parent / case["table"],
            version=case.get("version"),
            expected=file.parent / case["expected"] if "expected" in case else None,
            error=case.get("error"),
        )
        for case in listed
    ]


def run_case(case: Case, reader: str, timeout_s: float = 60.0) -> Result:
    """Run the reader's command and compare what it printed."""
    version = "" if case.version is None else str(case.version)
    filled = [
        part.replace("{table}", str(case.table.resolve())).replace("{version}", version)
        for part in shlex.split(reader)
    ]
    # A head has no number: its placeholder leaves no empty argument behind.
    command = [part for part in filled if part]
    try:
        # The command is the user's own: running it is what this program is for.
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)  # noqa: S603
    except OSError as error:
        return Result(case, f"the reader did not start: {error}")
    except subprocess.TimeoutExpired:
        return Result(case, f"the reader did not end within {timeout_s:g} s")
    try:
        lines = [json.loads(line) for line in done.stdout.decode().splitlines() if line.strip()]
    except ValueError as error:
        return Result(case, f"a printed line is not JSON: {error}")
    return Result(case, judge(case, done.returncode, lines))


def judge(case: Case, exit_code: int, lines: list[Any]) -> str | None:
    """What is wrong with the answer; None if nothing is."""
    if case.error is not None:
        return _judge_refusal(case.error, exit_code, lines)
    if exit_code != 0:
        return f"exit code {exit_code}: {json.dumps(lines[-1])[:200] if lines else 'no output'}"
    assert case.expected is not None
    wanted = json.loads(case.expected.read_text(encoding="utf-8"))
    if len(lines) != len(wanted["rows"]):
        return f"{len(lines)} rows instead of {len(wanted['rows'])}"
    for number, (row, expected) in enumerate(zip(lines, wanted["rows"], strict=True)):
        for column in wanted["columns"]:
            name, kind = column["name"], column["type"]
            if not isinstance(row, dict) or name not in row:
                return f"row {number}: column {name!r} is missing"
            if not _same(kind, row[name], expected[name]):
                return f"row {number}, column {name!r}: {row[name]!r} instead of {expected[name]!r}"
    return None


def _same(kind: Any, printed: Any, expected: Any) -> bool:
    try:
        return bool(canonical(kind, printed) == canonical(kind, expected))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return False


def _judge_refusal(error: str, exit_code: int, lines: list[Any]) -> str | None:
    if exit_code == 0:
        return f"accepted, with {len(lines)} rows; it must be refused ({error})"
    named = lines[-1].get("error", error) if lines and isinstance(lines[-1], dict) else error
    return None if named == error else f"refused as {named!r} instead of {error!r}"


def report(results: list[Result]) -> str:
    """A table with one line per case, and the sum."""
    width = max((len(result.case.name) for result in results), default=4)
    lines = [
        f"{'ok  ' if r.reason is None else 'FAIL'}  {r.case.name:<{width}}  "
        f"{r.case.shows if r.reason is None else r.reason}"
        for r in results
    ]
    passed = sum(result.reason is None for result in results)
    return "\n".join([*lines, f"{passed} of {len(results)} cases passed"])
