"""Commands that replace what is in a table: overwrite, delete, compact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline import cli_input, cli_output, cli_progress
from strandline.cli_commands import open_given, print_commit

if TYPE_CHECKING:
    import argparse
    from argparse import Namespace


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Arguments of `overwrite`."""
    parser.add_argument("file", metavar="FILE", help="rows; - for standard input")
    parser.add_argument("--format", choices=cli_input.FORMATS, help="else the file's name decides")
    parser.add_argument("--writer-id", metavar="ID", help="with --batch: overwrite exactly once")
    parser.add_argument("--batch", type=int, metavar="N", help="a number that grows per batch")
    parser.add_argument("--fence", metavar="TOKEN")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE")


def overwrite(given: Namespace) -> int:
    """Put the rows of a file in the place of all others."""
    table = open_given(given)
    commit = table.overwrite(
        cli_input.rows(given.file, given.format, table.manifest.schema),
        given.writer_id,
        given.batch,
        fence=given.fence,
        properties=cli_input.pairs(given.property, "--property") or None,
    )
    done = f"version {commit.version} holds these {commit.rows} rows and no others"
    print_commit(commit, done, as_json=given.json)
    return 0


def add_delete(parser: argparse.ArgumentParser) -> None:
    """Arguments of `delete`."""
    parser.add_argument(
        "--filter", required=True, metavar="EXPRESSION", help='rows to delete, such as "n > 5"'
    )
    parser.add_argument("--fence", metavar="TOKEN")


def delete(given: Namespace) -> int:
    """Delete the rows that match a filter."""
    done = open_given(given).delete(filter=given.filter, fence=given.fence)
    if given.json:
        cli_output.print_facts(done.to_json(), as_json=True)
    elif not done.rows:
        print(f"no row matches, nothing changed; the table is at version {done.version}")
    else:
        print(
            f"{done.rows} rows deleted in version {done.version}: {done.segments_dropped} segments "
            f"dropped, {done.segments_rewritten} rewritten"
        )
    return 0


def add_compact(parser: argparse.ArgumentParser) -> None:
    """Arguments of `compact`."""
    parser.add_argument("--sort-by", metavar="NAME,…", help="sort rows inside new segments")
    parser.add_argument("--target-rows", type=int, metavar="N", help="rows of a new segment")
    parser.add_argument("--target-bytes", type=int, metavar="N", help="bytes that go into one")
    parser.add_argument("--min-segments", type=int, metavar="N", help="leave fewer alone")
    parser.add_argument("--bytes-per-s", type=int, metavar="N", help="read and write no faster")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")


def compact(given: Namespace) -> int:
    """Put small segments together."""
    names = ("target_rows", "target_bytes", "min_segments", "bytes_per_s")
    options = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    with cli_progress.bars(quiet=given.json) as told:
        report = open_given(given).compact(
            None if given.sort_by is None else given.sort_by.split(","),
            dry_run=given.dry_run,
            progress=lambda done, of: told("compact", done, of),
            **options,
        )
    if given.json:
        cli_output.print_facts(report.to_json(), as_json=True)
    else:
        print(report)
    return 0
