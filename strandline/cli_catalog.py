"""`strandline catalog …`: tables by name from a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import strandline
from strandline import cli_input, cli_namespaces, cli_options, cli_output, cli_progress
from strandline.tableformat.errors import StrandlineError
from strandline.tableformat.redaction import redact

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_actions(catalog: ArgumentParser) -> None:
    """Declare what can be done with a catalog."""
    actions = catalog.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, help_text: str, run: Any, *more: str) -> ArgumentParser:
        made: ArgumentParser = actions.add_parser(name, help=help_text, description=help_text)
        made.add_argument("root", metavar="ROOT", help="the catalog's root URL")
        for argument in more:
            made.add_argument(argument, metavar=argument.upper())
        made.set_defaults(run=run)
        cli_options.add_common(made, storage=True)
        return made

    create = action("create", "create a table: NAMESPACE.NAME", _create, "table")
    create.add_argument("--schema", required=True, metavar="NAME:TYPE,…")
    create.add_argument("--time-column", metavar="NAME")
    create.add_argument("--ttl", metavar="DURATION")
    create.add_argument("--scope", choices=("shared", "user"), default="shared")
    listed = action("list", "list the tables of a namespace", _list)
    listed.add_argument("namespace", nargs="?", default="default", metavar="NAMESPACE")
    cli_options.add_page(listed)
    listed.add_argument("--dropped", action="store_true", help="dropped tables, too")
    action("namespaces", "list the namespaces", _namespaces)
    action("url", "print a table's URL, which all other verbs take", _url, "table")
    action("drop", "drop a table; its files stay until a purge", _drop, "table")
    action("undrop", "bring a dropped table back", _undrop, "table")
    action("rename", "give a table another name", _rename, "table", "to")
    purge = action("purge", "remove the files of dropped tables", _purge, "namespace")
    purge.add_argument("--older-than", default="24h", metavar="DURATION")
    cli_namespaces.add_actions(action)
    maintain = action("maintain", "maintain all tables by their own settings", _maintain)
    maintain.add_argument("namespace", nargs="?", metavar="NAMESPACE")
    add_maintenance(maintain)


def add_maintenance(parser: ArgumentParser) -> None:
    """How to maintain one table, or all of a catalog."""
    parser.add_argument("--dry-run", action="store_true", help="only tell")
    parser.add_argument("--bytes-per-s", type=int, metavar="N", help="compact no faster")
    what = "refuse to expire more than this share of the rows, such as 0.2"
    parser.add_argument("--max-share", type=float, default=1.0, metavar="SHARE", help=what)


def _catalog(given: Namespace) -> strandline.Catalog:
    return strandline.Catalog(given.root, cli_options.storage(given))


def _create(given: Namespace) -> int:
    table = _catalog(given).create_table(
        given.table,
        cli_input.schema(given.schema),
        time_column=given.time_column,
        ttl=given.ttl,
        scope=given.scope,
    )
    cli_output.print_facts({"url": table.url, "uuid": table.uuid}, as_json=given.json)
    return 0


def _print_tables(found: list[strandline.TableInfo], given: Namespace) -> int:
    columns = ("namespace", "name", "created_at", "deleted_at", "uuid", "url")
    rows = [[getattr(info, column) for column in columns] for info in found]
    cli_output.print_rows(columns, rows, as_json=given.json)
    return 0


def _list(given: Namespace) -> int:
    found = _catalog(given).list_tables(
        given.namespace,
        given.prefix,
        after=given.after,
        limit=given.limit,
        include_dropped=given.dropped,
    )
    return _print_tables(found, given)


def _namespaces(given: Namespace) -> int:
    rows = [[n.name, n.created_at] for n in _catalog(given).list_namespaces()]
    cli_output.print_rows(("name", "created_at"), rows, as_json=given.json)
    return 0


def _url(given: Namespace) -> int:
    info = _catalog(given).describe_table(given.table)
    if given.json:
        cli_output.print_facts(info.to_json(), as_json=True)
    else:
        print(info.url)
    return 0


def _drop(given: Namespace) -> int:
    info = _catalog(given).drop_table(given.table)
    cli_output.print_facts(info.to_json(), as_json=given.json)
    return 0


def _undrop(given: Namespace) -> int:
    table = _catalog(given).undrop_table(given.table)
    cli_output.print_facts({"url": table.url, "uuid": table.uuid}, as_json=given.json)
    return 0


def _rename(given: Namespace) -> int:
    info = _catalog(given).rename_table(given.table, given.to)
    cli_output.print_facts(info.to_json(), as_json=given.json)
    return 0


def _purge(given: Namespace) -> int:
    found = _catalog(given).purge(given.namespace, older_than=given.older_than)
    return _print_tables(found, given)


def _maintain(given: Namespace) -> int:
    return maintain_all(given, _catalog(given), given.namespace)


def maintenance(given: Namespace) -> dict[str, Any]:
    """What `add_maintenance` has asked for."""
    return {name: getattr(given, name) for name in ("dry_run", "bytes_per_s", "max_share")}


_COUNTS = ("steps", "rows_hidden", "segments_before", "segments_after", "objects_removed")


def _counts(done: dict[str, Any]) -> list[Any]:
    """What the steps of a report did, in few numbers."""
    names = ("expire", "compact", "expire_versions", "vacuum")
    expired, compacted, versions, swept = (done.get(name, {}) for name in names)
    removed = expired.get("files_removed", 0) + versions.get("manifests_removed", 0)
    removed += len(swept.get("removed", ()))
    return [
        " ".join(sorted(name for name in names if name in done)),
        expired.get("rows_hidden"),
        compacted.get("segments_before"),
        None if compacted.get("dry_run") else compacted.get("segments_after"),
        removed if done else None,
    ]


def maintain_all(given: Namespace, catalog: strandline.Catalog, namespace: str | None) -> int:
    """Maintain the tables of a catalog, and print what was done; 1 if one of them failed."""
    rows = []
    failed = 0
    with cli_progress.bars(quiet=given.json) as told:
        for info, report in catalog.maintain(namespace, **maintenance(given)):
            error = redact(str(report)) if isinstance(report, StrandlineError) else None
            done = {} if report is None or error else report.to_json()  # type: ignore[union-attr]
            failed += error is not None
            is_gone = info.deleted_at is not None
            rows.append([info.namespace, info.name, *_counts(done), is_gone, error])
            told("tables", len(rows), len(rows))
    names = ("namespace", "name", *_COUNTS, "dropped", "error")
    cli_output.print_rows(names, rows, as_json=given.json)
    return int(failed > 0)
