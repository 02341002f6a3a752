"""One function per verb: arguments in, the public API called, the answer printed."""

from __future__ import annotations

import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any, Final

import strandline
from strandline import cli_input, cli_options, cli_output
from strandline.tableformat import types
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.manifest import FORMAT_VERSION

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from strandline.table import Table

_LIBRARIES = ("pyarrow", "numpy", "fsspec", "s3fs", "gcsfs", "adlfs", "pyspark")


# --- opening -----------------------------------------------------------------------------------


def open_given(given: Namespace) -> Table:
    """The table that the arguments name, or one user's part of it."""
    version = getattr(given, "version", None)
    moment = cli_input.milliseconds(getattr(given, "as_of", None))
    options = cli_options.storage(given)
    user = getattr(given, "user", None)
    if user is None:
        return strandline.open_table(given.url, version, moment, storage_options=options)
    return strandline.open_table(given.url, storage_options=options).user(user, version, moment)


def _time(milliseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC).timestamp() + milliseconds / 1000
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


# --- writing -----------------------------------------------------------------------------------


_SETTINGS: Final = (
    "timestamping",
    "order",
    "row_group_rows",
    "writer_retention",
    "shard_by",
    "shards",
    "jitter_ms",
    "zone_rows",
    "scope",
)
"""Options of `create` that are settings of the table under the same name."""


def create(given: Namespace) -> int:
    """Create a table."""
    config = {name: value for name in _SETTINGS if (value := getattr(given, name)) is not None}
    for name in ("stats_columns", "sort_by"):
        if getattr(given, name) is not None:
            config[name] = cli_input.names(getattr(given, name))
    if given.index and given.no_indexes:
        raise InvalidInput("--index and --no-indexes contradict each other")
    chosen = cli_input.pairs(given.index, "--index")
    config["indexes"] = {name: cli_input.names(kinds) for name, kinds in chosen.items()} or (
        not given.no_indexes
    )
    table = strandline.create_table(
        given.url,
        cli_input.schema(given.schema),
        time_column=given.time_column,
        ttl=given.ttl,
        primary_key=cli_input.names(given.primary_key),
        storage_options=cli_options.storage(given),
        exist_ok=given.exist_ok,
        uncapped=given.uncapped,
        zone_pages=given.zone_pages,
        **config,
    )
    facts = {"url": table.url, "version": table.version, "uuid": table.uuid}
    cli_output.print_facts(facts, as_json=given.json)
    return 0


def append(given: Namespace) -> int:
    """Append the rows of a file."""
    table = open_given(given)
    return _put(given, table, table.append)


def upsert(given: Namespace) -> int:
    """Put the rows of a file in the place of those with their keys."""
    table = open_given(given)
    return _put(given, table, table.upsert)


def _put(given: Namespace, table: strandline.Table, put: Callable[..., strandline.Commit]) -> int:
    commit = put(
        cli_input.rows(given.file or "-", given.format, table.manifest.schema),
        given.writer_id,
        given.batch,
        fence=given.fence,
        match_seq=given.match_seq,
        properties=cli_input.pairs(given.property, "--property") or None,
    )
    done = f"no rows, nothing written; the table is at version {commit.version}"
    if commit.rows:
        done = (
            f"appended {commit.rows} rows as {commit.first_seq} to {commit.last_seq} in version "
            f"{commit.version}"
        )
    print_commit(commit, done, as_json=given.json)
    return 0


def print_commit(commit: strandline.Commit, done: str, *, as_json: bool) -> None:
    """What rows were given; `done` says in words what a commit that is new has done."""
    if as_json:
        cli_output.print_facts(asdict(commit), as_json=True)
        return
    if commit.superseded_by is not None:
        print(f"nothing written: this writer's newest batch is {commit.superseded_by} already")
    elif commit.duplicate:
        print(
            f"nothing written: version {commit.version} holds this batch already, as rows "
            f"{commit.first_seq} to {commit.last_seq}"
        )
    else:
        print(done)
    if commit.dropped:
        print(f"{commit.dropped} rows are older than the table's floor and were left out")


def recover(given: Namespace) -> int:
    """Commit what a writer left in its log."""
    found = open_given(given).recover(
        given.writer_id,
        None
        if given.wal is None
        else {"dir": given.wal, "storage_options": cli_options.storage(given)},
        committed_up_to=given.committed_up_to,
        fence=given.fence,
        dry_run=given.dry_run,
    )
    if given.json:
        facts = {"records": found.records, "rows": found.rows, "already": found.already}
        more = {"dry_run": given.dry_run, "log": found.log}
        cli_output.print_facts({**facts, **more}, as_json=True)
    elif not found.records and not found.already:
        place = "there is no such log" if found.log is None else "the log holds no records"
        print(f"nothing to recover: {place}")
    else:
        print(
            f"{'would commit' if given.dry_run else 'committed'} {found.records} records with "
            f"{found.rows} rows; {found.already} records were in the table already"
        )
    return 0


def evolve(given: Namespace) -> int:
    """Change the columns."""
    wider = {field.name: field.type for field in cli_input.columns(given.widen)}
    table = open_given(given)
    table.evolve(
        add=cli_input.columns(given.add) or None,
        rename=cli_input.pairs(given.rename, "--rename"),
        drop=[name for text in given.drop for name in cli_input.names(text)],
        widen=wider,
        reorder=cli_input.names(given.reorder),
        comments=dict(cli_input.pairs(given.comment, "--comment")),
    )
    _print_schema(table, as_json=given.json)
    return 0


# --- reading -----------------------------------------------------------------------------------


def scan(given: Namespace) -> int:
    """Print rows, a plan, or a count."""
    kind = cli_options.output_format(given)
    found = open_given(given).scan(
        cli_input.names(given.columns) or None,
        given.filter,
        **cli_options.bounds(given),
        limit=given.limit,
        indexes=not given.no_indexes,
        all_rows=given.all_rows,
    )
    if given.explain:
        if given.json:
            cli_output.print_facts({"plan": found.explain().splitlines()}, as_json=True)
        else:
            print(found.explain())
    elif given.count:
        cli_output.print_facts({"rows": found.count()}, as_json=given.json)
    else:
        cut_at = cli_output.ROWS_ON_SCREEN if given.limit is None else None
        cli_output.print_scan(found, kind, cut_at=cut_at)
    return 0


def users(given: Namespace) -> int:
    """List the users."""
    table = open_given(given)
    if not isinstance(table, strandline.UsersTable):
        raise InvalidInput(f"{table.url} has scope='shared': its rows belong to no users")
    found = table.users(given.prefix, after=given.after, limit=given.limit)
    cli_output.print_rows(("name",), [(name,) for name in found], as_json=given.json)
    return 0


def tail(given: Namespace) -> int:
    """Show where the next row goes."""
    end = open_given(given).tail()
    facts = {"next_seq": end.next_seq, "last_ts": end.last_ts, "version": end.version}
    if not given.json:
        facts["last_ts"] = _time(end.last_ts) if end.next_seq else None  # type: ignore[assignment]
    cli_output.print_facts(facts, as_json=given.json)
    return 0


def history(given: Namespace) -> int:
    """List commits, newest first."""
    names = ("version", "committed_at", "operation", "rows", "first_seq", "commit_id", "properties")
    rows = []
    for record in open_given(given).history(given.limit):
        row = {name: getattr(record, name) for name in names}
        row["committed_at"] = _time(record.committed_at)
        row["properties"] = dict(record.properties) or None
        rows.append(list(row.values()))
    cli_output.print_rows(names, rows, as_json=given.json)
    return 0


def files(given: Namespace) -> int:
    """List the data files."""
    found = open_given(given).files()
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    shown = [list(row) for row in rows]
    if not given.json:
        for name in ("min_ts", "max_ts", "window_start", "created_at"):
            position = found.column_names.index(name)
            for row in shown:
                row[position] = _time(row[position])
    cli_output.print_rows(found.column_names, shown, as_json=given.json)
    return 0


def schema(given: Namespace) -> int:
    """List the columns."""
    _print_schema(open_given(given), as_json=given.json)
    return 0


def _print_schema(table: Table, *, as_json: bool) -> None:
    names = ("name", "type", "nullable", "id", "physical_name", "comment")
    rows = []
    for column in table.manifest.schema.columns:
        row = {name: getattr(column, name) for name in names}
        row["type"] = types.to_json(column.type) if as_json else str(column.type)
        rows.append(list(row.values()))
    cli_output.print_rows(names, rows, as_json=as_json)


def describe(given: Namespace) -> int:
    """Sum up a table."""
    table = open_given(given)
    manifest = table.manifest
    config, by_id = manifest.config, manifest.schema.by_id
    facts = {
        "url": table.url,
        "uuid": table.uuid,
        "format_version": FORMAT_VERSION,
        "version": table.version,
        "committed_at": _time(manifest.commit.committed_at),
        **_contents(table),
        "columns": {c.name: str(c.type) for c in manifest.schema.columns},
        "time_column": None if config.time_column is None else by_id[config.time_column].name,
        "primary_key": [column.name for column in manifest.key_columns] or None,
        "ttl_ms": config.ttl_ms,
        "window_ms": config.window_ms,
        "timestamping": config.timestamping,
        "order": config.order,
        "writers": len(manifest.positions),
        "fenced": manifest.fence is not None,
    }
    if not given.json:
        facts["columns"] = ", ".join(f"{c.name} {c.type}" for c in manifest.schema.columns)
        facts["primary_key"] = ", ".join(c.name for c in manifest.key_columns) or None
    cli_output.print_facts(facts, as_json=given.json)
    return 0


def _contents(table: Table) -> dict[str, Any]:
    """How much there is. Of a table of users, how many: each of them is asked for the rest."""
    if isinstance(table, strandline.UsersTable):
        return {"scope": table.config.scope, "users": len(table.users())}
    found = table.files()
    sizes, counts = (found.column(name).to_pylist() for name in ("size_bytes", "row_count"))
    facts = {"rows": sum(counts), "next_seq": table.manifest.next_seq}
    return {**facts, "files": len(sizes), "bytes": sum(sizes)}


# --- health ------------------------------------------------------------------------------------


def doctor(given: Namespace) -> int:
    """Check a store and the table in it."""
    report = strandline.doctor(given.url, cli_options.storage(given), read_only=given.read_only)
    if given.json:
        cli_output.print_facts(report.to_json(), as_json=True)
    else:
        rows = [(check.status, check.name, check.message) for check in report.checks]
        cli_output.print_rows(("status", "check", "finding"), rows, as_json=False)
    return 0 if report.ok else 1


def verify(given: Namespace) -> int:
    """Check every file of a version against what the table says of it."""
    report = open_given(given).verify(deep=given.deep, repair=given.repair)
    if given.json:
        cli_output.print_facts(report.to_json(), as_json=True)
    else:
        print(report)
    return 0 if report.ok else 1


def version(given: Namespace) -> int:
    """Show versions."""
    facts = {"strandline": strandline.__version__, "format": str(FORMAT_VERSION)}
    facts["python"] = platform.python_version()
    for name in _LIBRARIES:
        try:
            facts[name] = installed_version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    cli_output.print_facts(facts, as_json=given.json)
    return 0
