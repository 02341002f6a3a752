"""Remembered queries and snapshots from a shell."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import strandline
from strandline import cli_input, cli_options, cli_output
from strandline.cli_commands import open_given

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from strandline.maintenance.snapshots import SnapshotInfo

    Make = Callable[..., ArgumentParser]


def add_verbs(verbs: Any, verb: Make) -> None:
    """Add the verbs to the command; `verb` makes one with the options that all have."""
    _add_query(_with_alias(verb(verbs, "remember", "keep the answer of a query", remember)))
    shown = _with_alias(verb(verbs, "show", "print the answer of a remembered query", show))
    cli_options.add_format(shown)
    _with_alias(verb(verbs, "refresh", "bring a remembered answer up to date", refresh))
    _with_alias(verb(verbs, "forget", "let a remembered query go", forget))
    verb(verbs, "remembered", "list the remembered queries", remembered)

    out = _with_file(
        verb(verbs, "export", "write a range of rows into one file", export, of_user=True)
    )
    cli_options.add_bounds(out)
    out.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    back = _with_file(
        verb(verbs, "replay", "append the rows of an exported file, once", replay, of_user=True)
    )
    back.add_argument("--fence", metavar="TOKEN")
    what = "verify an exported file and tell what it holds"
    verb(verbs, "inspect", what, inspect, url_help="where the file lies")


def _with_alias(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("alias", metavar="ALIAS", help="the name of the query")
    return parser


def _with_file(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("file", metavar="FILE", help="a path, or a URL of any store")
    cli_options.add_storage(parser, "file", "the file's store")
    return parser


def _add_query(parser: ArgumentParser) -> None:
    parser.add_argument("--filter", metavar="TEXT", help="which rows count")
    parser.add_argument("--columns", metavar="NAME,…", help="to group by, or those of kept rows")
    parser.add_argument("--bucket", metavar="DURATION", help="group by time, too, such as 1h")
    parser.add_argument(
        "--aggregate",
        action="append",
        default=[],
        metavar="NAME=CALL",
        help="such as total=sum(amount) or n=count(*); again for more",
    )
    parser.add_argument("--keep-rows", type=int, metavar="N", help="only the newest")
    parser.add_argument("--keep-age", metavar="DURATION", help="only the last, such as 7d")


# --- remembered queries ------------------------------------------------------------------------


def remember(given: Namespace) -> int:
    """Keep the answer of a query."""
    retention = {"rows": given.keep_rows, "age": given.keep_age}
    query = {
        "filter": given.filter,
        "columns": cli_input.names(given.columns),
        "bucket": given.bucket,
        "aggregates": cli_input.pairs(given.aggregate, "--aggregate"),
        "retention": {name: value for name, value in retention.items() if value is not None},
    }
    asked = {name: value for name, value in query.items() if value}
    open_given(given).remember(given.alias, asked)
    return _say(given, f"remembered as {given.alias}", alias=given.alias, query=asked)


def show(given: Namespace) -> int:
    """Print an answer as it is now."""
    answer = open_given(given).show(given.alias)
    cli_output.print_scan(answer, cli_options.output_format(given), cut_at=None)
    return 0


def refresh(given: Namespace) -> int:
    """Bring an answer up to date."""
    next_seq = open_given(given).refresh_query(given.alias)
    text = f"up to date to sequence number {next_seq}"
    return _say(given, text, alias=given.alias, next_seq=next_seq)


def forget(given: Namespace) -> int:
    """Let a query go."""
    open_given(given).forget(given.alias)
    return _say(given, f"{given.alias} is forgotten", alias=given.alias)


def remembered(given: Namespace) -> int:
    """List the queries."""
    rows = [[alias] for alias in open_given(given).remembered()]
    cli_output.print_rows(["alias"], rows, as_json=given.json)
    return 0


# --- snapshots ---------------------------------------------------------------------------------


def export(given: Namespace) -> int:
    """Write a range into a file."""
    info = open_given(given).export(
        given.file,
        **cli_options.bounds(given),
        storage_options=cli_options.storage(given, "file"),
        overwrite=given.overwrite,
    )
    return _tell(given, info)


def inspect(given: Namespace) -> int:
    """Verify a file, and tell what it holds."""
    options = cli_options.storage(given)
    return _tell(given, strandline.inspect_snapshot(given.url, storage_options=options))


def replay(given: Namespace) -> int:
    """Append what a file holds and the table does not have yet."""
    done = strandline.replay(
        given.file,
        open_given(given),
        storage_options=cli_options.storage(given, "file"),
        fence=given.fence,
    )
    cli_output.print_facts(asdict(done), as_json=given.json)
    return 0


def _tell(given: Namespace, info: SnapshotInfo) -> int:
    header = info.header
    facts = {
        "snapshot_id": header.snapshot_id,
        "table_uuid": header.table_uuid,
        "version": header.version,
        "columns": [column.name for column in header.schema.columns],
        **asdict(info.ranges),
    }
    cli_output.print_facts(facts, as_json=given.json)
    return 0


def _say(given: Namespace, text: str, **facts: Any) -> int:
    if given.json:
        cli_output.print_facts(facts, as_json=True)
    else:
        print(text)
    return 0
