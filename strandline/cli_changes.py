"""Commands that replace what is in a table: overwrite, delete, compact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline import cli_input, cli_output, cli_progress
from strandline.cli_commands import open_given, print_commit
from strandline.tableformat.errors import InvalidInput

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
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--filter", metavar="EXPRESSION", help='rows to delete, such as "n > 5"')
    what.add_argument(
        "--keys", metavar="FILE", help="rows with the key's columns; - for standard input"
    )
    parser.add_argument("--format", choices=cli_input.FORMATS, help="else the file's name decides")
    parser.add_argument("--writer-id", metavar="ID", help="with --keys and --batch: exactly once")
    parser.add_argument("--batch", type=int, metavar="N", help="a number that grows per batch")
    parser.add_argument("--fence", metavar="TOKEN")
    parser.add_argument("--match-seq", type=int, metavar="N", help="only if this is the next seq")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE")


def delete(given: Namespace) -> int:
    """Delete the rows that match a filter, or those of some keys."""
    if given.keys is not None:
        return _delete_keys(given)
    named = ("format", "writer_id", "batch", "match_seq", "property")
    unfit = [name for name in named if getattr(given, name) not in (None, [])]
    if unfit:
        raise InvalidInput(f"--{unfit[0].replace('_', '-')} goes with --keys, not with --filter")
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


def _delete_keys(given: Namespace) -> int:
    table = open_given(given)
    commit = table.delete(
        keys=cli_input.rows(given.keys, given.format, table.manifest.schema),
        writer_id=given.writer_id,
        batch=given.batch,
        fence=given.fence,
        match_seq=given.match_seq,
        properties=cli_input.pairs(given.property, "--property") or None,
    )
    done = f"no keys, nothing written; the table is at version {commit.version}"
    if commit.rows:
        done = f"{commit.rows} keys deleted in version {commit.version}"
    print_commit(commit, done, as_json=given.json)
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
