"""The `strandline` command: it parses, calls the public API, and leaves printing to others."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from strandline import (
    cli_answers,
    cli_catalog,
    cli_changes,
    cli_commands,
    cli_input,
    cli_lifecycle,
    cli_options,
    cli_streams,
)
from strandline.tableformat.errors import StrandlineError
from strandline.tableformat.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

OK: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""What a shell reports for a program that a closed pipe ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 if it failed, 2 if it was not understood."""
    arguments = _parsed(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more when it flushes standard output at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if arguments.debug:
            raise
        _complain(error)
        return FAILED
    return code


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments, left = parser.parse_known_args(argv)
    # argparse gives up on a FILE that may be left out as soon as an option stands before it.
    if len(left) == 1 and not left[0].startswith("-"):
        for name in ("file", "name", "namespace"):
            if left and getattr(arguments, name, "") is None:
                setattr(arguments, name, left.pop())
    if left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return arguments


def _complain(error: Exception) -> None:
    text = redact(str(error))
    if not isinstance(error, StrandlineError):
        text = f"unexpected {type(error).__name__}: {text} (--debug shows where)"
    print(f"strandline: {text}", file=sys.stderr)


# --- arguments ---------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="strandline",
        description="Tables of events on local disks and object storage.",
        epilog="`strandline VERB --help` explains a verb. A URL is a local path, s3://…, gs://… "
        "or abfs://…",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_create(_verb(verbs, "create", "create a table", cli_commands.create))
    _add_append(
        _verb(verbs, "append", "append rows in one commit", cli_commands.append, of_user=True)
    )
    _add_append(
        _verb(
            verbs,
            "upsert",
            "append rows that replace others by key",
            cli_commands.upsert,
            of_user=True,
        )
    )
    cli_changes.add_overwrite(
        _verb(
            verbs,
            "overwrite",
            "replace all rows in one commit",
            cli_changes.overwrite,
            of_user=True,
        )
    )
    cli_changes.add_delete(
        _verb(
            verbs,
            "delete",
            "delete rows by a filter, or by their keys",
            cli_changes.delete,
            of_user=True,
        )
    )
    cli_changes.add_compact(
        _verb(verbs, "compact", "put small segments together", cli_changes.compact, of_user=True)
    )
    _add_recover(
        _verb(
            verbs,
            "recover",
            "commit what a writer left in its log",
            cli_commands.recover,
            of_user=True,
        )
    )
    _add_scan(_verb(verbs, "scan", "print rows", cli_commands.scan, of_user=True))
    _verb(verbs, "tail", "show where the next row goes", cli_commands.tail, of_user=True)
    users = _verb(verbs, "users", "list the users of a table", cli_commands.users)
    cli_options.add_page(users)
    history = _verb(
        verbs, "history", "list commits, newest first", cli_commands.history, of_user=True
    )
    history.add_argument("--limit", type=int, metavar="N")
    _add_version(_verb(verbs, "files", "list the data files", cli_commands.files, of_user=True))
    _add_version(_verb(verbs, "schema", "list the columns", cli_commands.schema))
    _add_evolve(_verb(verbs, "evolve", "change the columns", cli_commands.evolve))
    _add_version(
        _verb(
            verbs,
            "describe",
            "sum up a table",
            cli_commands.describe,
            aliases=["info"],
            of_user=True,
        )
    )
    doctor = _verb(verbs, "doctor", "check a store and the table in it", cli_commands.doctor)
    doctor.add_argument("--read-only", action="store_true", help="write nothing to the store")
    verify = _verb(
        verbs, "verify", "check every file against its checksum", cli_commands.verify, of_user=True
    )
    verify.add_argument("--deep", action="store_true", help="read and decode all data too")
    verify.add_argument("--repair", action="store_true", help="make damaged indexes anew")
    _add_version(verify)
    cli_lifecycle.add_verbs(verbs, _verb)
    cli_answers.add_verbs(verbs, _verb)
    cli_catalog.add_actions(verbs.add_parser("catalog", help="tables by name under one root"))
    cli_streams.add_actions(verbs.add_parser("stream", help="short-lived rows of many users"))
    version = verbs.add_parser("version", help="show the versions of Strandline and its libraries")
    cli_options.add_common(version, storage=False)
    version.set_defaults(run=cli_commands.version)
    return parser


def _verb(
    verbs: Any,
    name: str,
    help_text: str,
    run: Any,
    *,
    url_help: str = "where the table lies",
    of_user: bool = False,
    **more: Any,
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.", **more
    )
    made.add_argument("url", metavar="URL", help=url_help)
    made.set_defaults(run=run)
    if of_user:
        made.add_argument("--user", metavar="NAME", help="in a table with --scope user: whose rows")
    cli_options.add_common(made, storage=True)
    return made


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--schema",
        required=True,
        metavar="NAME:TYPE,…",
        help="columns, such as ts:timestamptz,country:string; or a .json or .parquet file",
    )
    parser.add_argument("--time-column", metavar="NAME", help="where a row's time comes from")
    parser.add_argument("--ttl", metavar="DURATION", help="how long rows live, such as 7d or 12h")
    parser.add_argument("--timestamping", metavar="MODE")
    parser.add_argument("--order", metavar="ORDER")
    parser.add_argument("--uncapped", action="store_true", help="allow times in the future")
    parser.add_argument(
        "--primary-key", metavar="NAME,…", help="scans give the newest row of each key"
    )
    parser.add_argument("--stats-columns", metavar="NAME,…", help="columns with stats for pruning")
    parser.add_argument("--row-group-rows", type=int, metavar="N")
    parser.add_argument("--writer-retention", metavar="DURATION")
    parser.add_argument("--shard-by", metavar="NAME", help="the key that rows are spread by")
    parser.add_argument("--shards", type=int, metavar="N")
    parser.add_argument("--sort-by", metavar="NAME,…", help="how rows are sorted inside files")
    parser.add_argument("--jitter-ms", type=int, metavar="N", help="later rows are stored apart")
    parser.add_argument("--zone-rows", type=int, metavar="N", help="granule of indexes")
    parser.add_argument("--zone-pages", action="store_true", help="finer reads, slower writes")
    parser.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="NAME=KIND,…",
        help="indexes of a column, such as user=postings; again for more. NAME= alone: none",
    )
    parser.add_argument("--no-indexes", action="store_true", help="no index files at all")
    parser.add_argument("--exist-ok", action="store_true", help="open a table that is there")
    parser.add_argument(
        "--scope", choices=("shared", "user"), help="user: versions and rows for each user apart"
    )


def _add_append(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="rows; - or nothing: standard input"
    )
    parser.add_argument("--format", choices=cli_input.FORMATS, help="else the file's name decides")
    parser.add_argument("--writer-id", metavar="ID", help="with --batch: append exactly once")
    parser.add_argument("--batch", type=int, metavar="N", help="a number that grows per batch")
    parser.add_argument("--fence", metavar="TOKEN")
    parser.add_argument("--match-seq", type=int, metavar="N", help="only if this is the next seq")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE")


def _add_recover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--writer-id", metavar="ID", help="else the name of this machine")
    parser.add_argument("--wal", metavar="PLACE", help="folder or URL of its log, if it named one")
    parser.add_argument(
        "--committed-up-to",
        type=int,
        metavar="N",
        help="the newest record that is certainly in the table, where the table does not know",
    )
    parser.add_argument("--fence", metavar="TOKEN")
    parser.add_argument("--dry-run", action="store_true", help="only look; change nothing")


def _add_scan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", metavar="NAME,…", help="may name _seq, _ts and _window too")
    parser.add_argument("--filter", metavar="TEXT", help="such as \"country = 'US' AND n > 10\"")
    cli_options.add_bounds(parser)
    parser.add_argument("--limit", type=int, metavar="N")
    cli_options.add_format(parser)
    parser.add_argument("--explain", action="store_true", help="show the plan, read no rows")
    parser.add_argument("--no-indexes", action="store_true", help="leave index files alone")
    parser.add_argument("--count", action="store_true", help="show only how many rows there are")
    parser.add_argument(
        "--all-rows", action="store_true", help="of a keyed table, rows that were replaced too"
    )
    _add_version(parser)


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version", type=_version_or_tag, metavar="N", help="read this version; or a tag"
    )
    parser.add_argument("--as-of", metavar="TIME", help="read the version of this time")


def _version_or_tag(given: str) -> int | str:
    return int(given) if given.isdigit() else given


def _add_evolve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--add", action="append", default=[], metavar="NAME:TYPE")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--drop", action="append", default=[], metavar="NAME")
    parser.add_argument("--widen", action="append", default=[], metavar="NAME:TYPE")
    parser.add_argument("--comment", action="append", default=[], metavar="NAME=TEXT")
    parser.add_argument("--reorder", metavar="NAME,…", help="columns that come first")


if __name__ == "__main__":
    sys.exit(main())
