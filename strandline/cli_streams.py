"""`strandline stream …`: short-lived rows of many users from a shell."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import strandline
from strandline import cli_input, cli_options, cli_output
from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_actions(stream: ArgumentParser) -> None:
    """Declare what can be done with a stream table."""
    actions = stream.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, help_text: str, run: Any, *, of_user: bool) -> ArgumentParser:
        made: ArgumentParser = actions.add_parser(name, help=help_text, description=help_text)
        made.add_argument("url", metavar="URL", help="where the table lies")
        if of_user:
            made.add_argument("user", metavar="USER")
        made.set_defaults(run=run)
        cli_options.add_common(made, storage=True)
        return made

    create = action("create", "create a table of short-lived rows", _create, of_user=False)
    create.add_argument("--schema", required=True, metavar="NAME:TYPE,…")
    create.add_argument("--row-id", required=True, metavar="NAME", help="of one id the newest row")
    create.add_argument("--ttl", required=True, metavar="DURATION", help="such as 60s or 1h")
    create.add_argument("--time-column", metavar="NAME")
    put = action("put", "put rows of a user", _put, of_user=True)
    put.add_argument("file", nargs="?", metavar="FILE", help="rows; - or nothing: standard input")
    put.add_argument("--format", choices=cli_input.FORMATS, help="else the file's name decides")
    ids = action("delete", "end rows of a user by their ids", _delete, of_user=True)
    ids.add_argument("ids", nargs="+", metavar="ID")
    latest = action("latest", "print a user's rows, newest first", _latest, of_user=True)
    latest.add_argument("--limit", type=int, metavar="N")
    range_ = action("range", "print a user's rows between two times", _range, of_user=True)
    cli_options.add_times(range_)
    for reading in (latest, range_):
        reading.add_argument("--columns", metavar="NAME,…", help="may name _ts, too")
        cli_options.add_format(reading)
    action("users", "list the users who have rows", _users, of_user=False)
    action("expire", "remove the windows that have outlived the TTL", _expire, of_user=False)


def _opened(given: Namespace) -> strandline.StreamTable:
    options = cli_options.storage(given)
    return strandline.open_table(given.url, kind="stream", storage_options=options)


def _create(given: Namespace) -> int:
    table = strandline.create_table(
        given.url,
        cli_input.schema(given.schema),
        kind="stream",
        row_id=given.row_id,
        ttl=given.ttl,
        time_column=given.time_column,
        storage_options=cli_options.storage(given),
    )
    cli_output.print_facts({"url": table.url, "uuid": table.uuid}, as_json=given.json)
    return 0


def _put(given: Namespace) -> int:
    with _opened(given) as table:
        rows = cli_input.rows(given.file or "-", given.format, table.manifest.schema)
        done = table.put(given.user, rows, flush=True)
    cli_output.print_facts(asdict(done), as_json=given.json)
    return 0


def _delete(given: Namespace) -> int:
    with _opened(given) as table:
        kind = table.schema.field(table.row_id).type
        try:
            ids = pa.array(given.ids, pa.string()).cast(kind).to_pylist()
        except pa.ArrowException:
            raise InvalidInput(
                f"ids of this table are {kind}, and one of these is not. Nothing was deleted."
            ) from None
        alive = table.delete(given.user, ids, flush=True)
    cli_output.print_facts({"deleted": alive}, as_json=given.json)
    return 0


def _latest(given: Namespace) -> int:
    with _opened(given) as table:
        return _print(given, table.latest(given.user, given.limit, _columns(given)))


def _range(given: Namespace) -> int:
    with _opened(given) as table:
        times = cli_options.times(given)
        return _print(given, table.range(given.user, **times, columns=_columns(given)))


def _columns(given: Namespace) -> list[str] | None:
    return cli_input.names(given.columns) or None


def _print(given: Namespace, rows: pa.Table) -> int:
    cli_output.print_scan(rows, cli_options.output_format(given), cut_at=None)
    return 0


def _users(given: Namespace) -> int:
    with _opened(given) as table:
        cli_output.print_rows(["user"], [[user] for user in table.users()], as_json=given.json)
    return 0


def _expire(given: Namespace) -> int:
    with _opened(given) as table:
        done = table.expire()
    facts = {"windows_removed": len(done.windows), "cutoff_ms": done.cutoff_ms}
    cli_output.print_facts(facts, as_json=given.json)
    return 0
