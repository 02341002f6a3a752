"""The verbs that end things: expire, trim, tags, rollback, versions, vacuum, purge, maintain.

What removes something from the store only tells what it would do, until `--yes` is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import strandline
from strandline import cli_catalog, cli_input, cli_options, cli_output, cli_progress
from strandline.cli_commands import open_given
from strandline.tableformat.errors import TableNotFound

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from strandline.table import Table

    Make = Callable[..., ArgumentParser]


def add_verbs(verbs: Any, verb: Make) -> None:
    """Add the verbs to the command; `verb` makes one with the options that all have."""
    made = verb(verbs, "expire", "hide rows older than the TTL, remove what was hidden", expire)
    _add_removal(made)
    made.add_argument("--force", action="store_true", help="also if the clocks contradict")
    what = "refuse to expire more than this share of the rows, such as 0.2"
    made.add_argument("--max-share", type=float, default=1.0, metavar="SHARE", help=what)
    trim_ = verb(
        verbs, "trim", "hide all rows below a sequence number for ever", trim, of_user=True
    )
    trim_.add_argument("seq", type=int, metavar="SEQ")
    set_ = verb(verbs, "set", "change settings", set_table)
    set_.add_argument("setting", nargs="+", metavar="NAME=VALUE", help="such as ttl=7d, history=1d")
    tag_ = verb(verbs, "tag", "name a version and keep it", tag, of_user=True)
    tag_.add_argument("name", nargs="?", metavar="NAME", help="without one, tags are listed")
    tag_.add_argument("--at", type=int, metavar="N", help="the version; by default the newest")
    untag_ = verb(verbs, "untag", "remove a tag", untag, of_user=True)
    untag_.add_argument("name", metavar="NAME")
    back = verb(
        verbs, "rollback", "bring back the rows of an earlier version", rollback, of_user=True
    )
    back.add_argument("to", metavar="VERSION", help="a number or a tag")
    old = verb(verbs, "expire-versions", "give up old versions", expire_versions)
    old.add_argument("--older-than", default="7d", metavar="DURATION")
    old.add_argument("--retain-last", type=int, default=1, metavar="N")
    old.add_argument("--yes", action="store_true", help="do it; else only tell")
    _add_removal(verb(verbs, "vacuum", "remove files that no version needs", vacuum))
    _add_removal(verb(verbs, "purge", "remove the bytes of all that is hidden", purge))
    what = "expire, compact, vacuum by the settings of a table, or of all tables of a catalog"
    cli_catalog.add_maintenance(verb(verbs, "maintain", what, maintain))


def _add_removal(parser: ArgumentParser) -> None:
    parser.add_argument("--grace", default="24h", metavar="DURATION", help="of readers; 0 for none")
    parser.add_argument("--yes", action="store_true", help="do it; else only tell")


def _show(given: Namespace, report: Any) -> int:
    if given.json:
        cli_output.print_facts(report.to_json(), as_json=True)
    else:
        print(report)
        if not getattr(given, "yes", True):
            print("nothing was changed; --yes does it")
    return 0


def _say(given: Namespace, table: Table, text: str, **facts: Any) -> int:
    if given.json:
        cli_output.print_facts({"version": table.version, **facts}, as_json=True)
    else:
        print(text)
    return 0


def expire(given: Namespace) -> int:
    """Expire rows."""
    table = open_given(given)
    report = table.expire(
        dry_run=not given.yes,
        grace=given.grace,
        force=given.force,
        max_share=given.max_share,
    )
    return _show(given, report)


def trim(given: Namespace) -> int:
    """Hide rows below a number."""
    table = open_given(given)
    seq = table.trim(given.seq)
    return _say(given, table, f"rows below {seq} are hidden for ever", trim_seq=seq)


def set_table(given: Namespace) -> int:
    """Change settings."""
    table = open_given(given)
    settings: dict[str, Any] = {}
    for name, value in cli_input.pairs(given.setting, "a setting").items():
        number = int(value) if value.isdecimal() else value
        settings[name] = None if value in ("", "none") else number
    table.set(**settings)
    return _say(given, table, f"version {table.version}: set {', '.join(given.setting)}")


def tag(given: Namespace) -> int:
    """Tag a version, or list tags."""
    table = open_given(given)
    if given.name is None:
        rows = sorted(table.tags().items())
        cli_output.print_rows(("tag", "version"), rows, as_json=given.json)
        return 0
    version = table.tag(given.name, given.at)
    return _say(given, table, f"{given.name} is version {version}", tagged=version)


def untag(given: Namespace) -> int:
    """Remove a tag."""
    table = open_given(given)
    table.untag(given.name)
    return _say(given, table, f"{given.name} is no tag any more")


def rollback(given: Namespace) -> int:
    """Bring rows back."""
    table = open_given(given)
    version = table.rollback(int(given.to) if given.to.isdecimal() else given.to)
    return _say(given, table, f"version {version} has the rows of {given.to}")


def expire_versions(given: Namespace) -> int:
    """Give up versions."""
    report = open_given(given).expire_versions(
        given.older_than, retain_last=given.retain_last, dry_run=not given.yes
    )
    return _show(given, report)


def vacuum(given: Namespace) -> int:
    """Remove files."""
    return _show(given, open_given(given).vacuum(dry_run=not given.yes, grace=given.grace))


def purge(given: Namespace) -> int:
    """Remove bytes of hidden rows."""
    return _show(given, open_given(given).purge(dry_run=not given.yes, grace=given.grace))


def maintain(given: Namespace) -> int:
    """Run all maintenance, of a table or of all tables of a catalog."""
    try:
        table = open_given(given)
    except TableNotFound:
        options = cli_options.storage(given)
        catalog = strandline.Catalog(given.url, options)
        if not catalog.list_namespaces():
            raise
        return cli_catalog.maintain_all(given, catalog, None)
    with cli_progress.bars(quiet=given.json) as told:
        report = table.maintain(progress=told, **cli_catalog.maintenance(given))
    return _show(given, report)
