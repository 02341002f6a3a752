"""Options that several verbs share: how they are declared, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline import cli_input
from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    import argparse
    from argparse import Namespace


def add_common(parser: argparse.ArgumentParser, *, storage: bool) -> None:
    """What every verb takes."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    if storage:
        add_storage(parser, "storage", "the store")


def add_storage(parser: argparse.ArgumentParser, name: str, of: str) -> None:
    """`--NAME-option` and `--NAME-options-file`."""
    parser.add_argument(
        f"--{name}-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"an option for {of}; again for more. Others on this machine can see command lines, "
        f"so secrets belong in --{name}-options-file or the environment",
    )
    parser.add_argument(f"--{name}-options-file", metavar="FILE", help="options as JSON")


def storage(given: Namespace, name: str = "storage") -> dict[str, Any] | None:
    """What was said with these."""
    file = getattr(given, f"{name}_options_file")
    return cli_input.storage_options(getattr(given, f"{name}_option"), file)


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """The range of rows."""
    parser.add_argument("--start-seq", type=int, metavar="N", help="inclusive")
    parser.add_argument("--end-seq", type=int, metavar="N", help="exclusive")
    add_times(parser)


def add_times(parser: argparse.ArgumentParser) -> None:
    """The range of times."""
    parser.add_argument("--start-ts", metavar="TIME", help="inclusive; ISO text or ms since 1970")
    parser.add_argument("--end-ts", metavar="TIME", help="inclusive")


def bounds(given: Namespace) -> dict[str, Any]:
    """The range as keyword arguments of the library."""
    return {"start_seq": given.start_seq, "end_seq": given.end_seq, **times(given)}


def times(given: Namespace) -> dict[str, Any]:
    """The range of times as keyword arguments of the library."""
    return {name: cli_input.milliseconds(getattr(given, name)) for name in ("start_ts", "end_ts")}


def add_page(parser: argparse.ArgumentParser) -> None:
    """Which part of a list of names."""
    parser.add_argument("--prefix", default="")
    parser.add_argument("--after", metavar="NAME", help="the last name of the page before")
    parser.add_argument("--limit", type=int, metavar="N")


def add_format(parser: argparse.ArgumentParser) -> None:
    """How rows are printed."""
    parser.add_argument("--format", choices=("table", "json", "jsonl", "csv", "arrow"))


def output_format(given: Namespace) -> str:
    """How rows are to be printed."""
    if given.json and given.format not in (None, "json", "jsonl"):
        raise InvalidInput("--json and --format ask for different things")
    return given.format or ("json" if given.json else "table")
