"""The half of a table that ends things: rows, versions, files, the table itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.commit import MetadataChange
from strandline.tableformat.arguments import check_count, check_text
from strandline.tableformat.config import ON_LATE
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.lifecycle import MAX_TAG_BYTES
from strandline.tableformat.retention import (
    DropTag,
    Rollback,
    SetConfig,
    SetTag,
    TrimTo,
)
from strandline.tableformat.windows import parse_duration, window_ms_for_ttl

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.maintenance.expire import ExpireReport
    from strandline.maintenance.maintain import MaintainReport
    from strandline.maintenance.purge import PurgeReport
    from strandline.maintenance.vacuum import VacuumReport, VersionsReport
    from strandline.tableformat.manifest import Manifest

Duration = Any
"""Text such as "24h", or a timedelta; 0 for none."""


class EndsThings:
    """Retention, tags, rollback, and removing what is no longer needed."""

    _chain: Chain
    _head: Snapshot
    _see: Callable[[Snapshot], None]
    _check_writable: Callable[[], None]
    _commit_metadata: Callable[[MetadataChange, str], None]
    refresh: Callable[[], Any]
    compact: Callable[..., Any]

    # --- rows ---

    def expire(
        self,
        now: datetime | int | None = None,
        *,
        dry_run: bool = False,
        grace: str | timedelta | int = "24h",
        force: bool = False,
        max_share: float = 1.0,
    ) -> ExpireReport:
        """Hide rows older than the TTL at once; remove whole windows once `grace` is over.

        One small commit, whatever the number of files; then, for windows hidden for at least
        `grace`, the deletion of their folders. `now`: a datetime or milliseconds since 1970, by
        default the store's clock. A run that would hide more than `max_share` of the rows, or more
        than half of them while the store's clock and this machine's differ by more than an hour,
        is refused unless `force`.
        """
        from strandline.maintenance import expire as work  # noqa: PLC0415 - see `writing`

        self._check_writable()
        options = work.ExpireOptions(
            now_ms=_moment(now),
            dry_run=dry_run,
            grace_ms=duration_ms(grace, "grace"),
            force=force,
            max_share=_share(max_share),
        )
        report, snapshot = work.expire(self._chain, self._head, options)
        self._see(snapshot)
        return report

    def trim(self, seq: int) -> int:
        """Hide all rows below a sequence number for ever, at older versions too.

        Gives the trim point afterwards, which never falls.
        """
        if check_count("seq", seq) is None:
            raise InvalidInput("trim needs a sequence number")
        self._commit_metadata(MetadataChange((TrimTo(seq),)), "trim")
        return self._head.manifest.trim_seq

    def set(self, **settings: Any) -> None:
        """Change settings: ttl, writer_retention, on_late, history, delete_on_empty_secs.

        `ttl`: `"7d"`, or None for ever; existing windows keep their folders and their length.
        `history`: how long versions are kept by `maintain`; None for ever.
        `delete_on_empty_secs`: the table is dropped by `maintain` once it has been without rows
        for so long; 0 is off.
        """
        unknown = sorted(set(settings) - set(_SETTERS))
        if unknown or not settings:
            raise InvalidInput(
                f"set changes {', '.join(sorted(_SETTERS))}, not {', '.join(unknown) or 'nothing'}"
            )
        changes: dict[str, Any] = {}
        for name, value in settings.items():
            changes |= _SETTERS[name](value)
        if changes.get("delete_on_empty_ms") and self._head.manifest.config.scope == "user":
            raise InvalidInput(
                "a table of users is not dropped when it is empty: its users come and go. Nothing "
                "was changed. Leave delete_on_empty_secs at 0."
            )
        self._commit_metadata(MetadataChange((SetConfig(changes),)), "set")

    # --- versions ---

    def tag(self, name: str, version: int | None = None) -> int:
        """Name a version, by default the newest, and keep it; gives its number.

        `open_table(url, version=name)` reads it. Rows that expire are hidden there all the same.
        """
        if check_text("a tag", name, MAX_TAG_BYTES) is None:
            raise InvalidInput("a tag needs a name")
        check_count("version", version)
        self._commit_metadata(MetadataChange((SetTag(name, version),)), "tag")
        return self._head.manifest.lifecycle.tags[name].version

    def untag(self, name: str) -> None:
        """Remove a tag; its version is then kept no longer than its neighbours."""
        self._commit_metadata(MetadataChange((DropTag(name),)), "untag")

    def tags(self) -> dict[str, int]:
        """The tags and their versions."""
        self.refresh()
        return {n: tag.version for n, tag in self._head.manifest.lifecycle.tags.items()}

    def rollback(self, version: int | str) -> int:
        """Bring back the rows of an earlier version as a new one; gives its number.

        Only rows come back: columns, settings, writers' positions, the floor and the trim point
        stay as they are. Sequence numbers that were given since are never given again.
        """
        self._check_writable()
        self.refresh()
        head = self._head
        if isinstance(version, str):
            tag = head.manifest.lifecycle.tags.get(version)
            if tag is None:
                raise InvalidInput(
                    f"there is no tag {version!r}; `tags` lists them. Nothing was changed."
                )
            version = tag.version
        if type(version) is not int:
            raise InvalidInput(f"version must be an integer or a tag, not {version!r}")
        self._commit_metadata(
            MetadataChange((_rollback_to(self._chain.at_version(version, head).manifest),)),
            "rollback",
        )
        return self._head.manifest.version

    # --- removing ---

    def expire_versions(
        self,
        older_than: str | timedelta | int = "7d",
        *,
        retain_last: int = 1,
        dry_run: bool = False,
        grace: str | timedelta | int = "24h",
    ) -> VersionsReport:
        """Give up versions that have not been the newest for `older_than`, except tagged ones.

        The newest `retain_last` stay in any case, and so does every version of the last hour.
        What is given up cannot be opened by its number any more; its files stay for `grace`, for
        those who have it open, and go in a later run.
        """
        from strandline.maintenance import users_vacuum as work  # noqa: PLC0415

        self._check_writable()
        if type(retain_last) is not int or retain_last < 1:
            raise InvalidInput(f"retain_last must be an integer of 1 or more, not {retain_last!r}")
        report, snapshot = work.expire_all_versions(
            self._chain,
            self._head,
            older_than_ms=duration_ms(older_than, "older_than"),
            retain_last=retain_last,
            grace_ms=duration_ms(grace, "grace"),
            dry_run=dry_run,
        )
        self._see(snapshot)
        return report

    def vacuum(self, *, dry_run: bool = True, grace: str | timedelta | int = "24h") -> VacuumReport:
        """Remove objects that no kept version needs and that are older than `grace`.

        By default it only says what it would remove.
        """
        from strandline.maintenance import users_vacuum as work  # noqa: PLC0415

        self._check_writable()
        grace_ms = duration_ms(grace, "grace")
        report, snapshot = work.vacuum_all(
            self._chain, self._head, grace_ms=grace_ms, dry_run=dry_run
        )
        self._see(snapshot)
        return report

    def purge(self, *, dry_run: bool = True, grace: str | timedelta | int = "24h") -> PurgeReport:
        """Remove the bytes of everything that was deleted, trimmed or expired before `grace`.

        History goes with it: only the newest version and tagged ones can still be opened. Files
        stay for `grace`, for those who have an older version open. The report says from when on
        a further run leaves nothing of what is hidden now.
        """
        from strandline.maintenance import purge as work  # noqa: PLC0415

        self._check_writable()
        grace_ms = duration_ms(grace, "grace")
        report, snapshot = work.purge(self._chain, self._head, grace_ms=grace_ms, dry_run=dry_run)
        self._see(snapshot)
        return report

    def maintain(
        self,
        *,
        dry_run: bool = False,
        grace: str | timedelta | int = "24h",
        max_share: float = 1.0,
        bytes_per_s: int | None = None,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> MaintainReport:
        """Do what the table's settings ask for: expire, compact, give up versions, vacuum.

        Safe to run twice at once, and to break off. `max_share`: as `expire` has it; where it
        refuses, nothing else is done. `bytes_per_s`: as `compact` has it. `progress` hears the name
        of each step, how much of it is done, and how much there is.
        """
        from strandline.maintenance import maintain as work  # noqa: PLC0415

        self._check_writable()
        report, snapshot = work.maintain(
            self._chain,
            self._head,
            compact=lambda told: self.compact(
                min_segments=3, bytes_per_s=bytes_per_s, dry_run=dry_run, progress=told
            ),
            dry_run=dry_run,
            grace_ms=duration_ms(grace, "grace"),
            max_share=_share(max_share),
            progress=progress,
        )
        self._see(snapshot)
        return report


def _share(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise InvalidInput(f"max_share is a share from 0 to 1, not {value!r}")
    return float(value)


def _rollback_to(target: Manifest) -> Rollback:
    rows = target.next_seq - target.deleted_rows
    return Rollback(target.version, rows, target.segments, target.windows, target.window_pages)


def duration_ms(given: Duration, what: str) -> int:
    """A length of time that may be none."""
    is_none = (given == 0 and given is not False) or given == "0"
    return 0 if is_none else parse_duration(given, what)


def _moment(given: object) -> int | None:
    if isinstance(given, datetime):
        zoned = given if given.tzinfo else given.replace(tzinfo=UTC)
        return int(zoned.timestamp() * 1000)
    if given is not None and type(given) is not int:
        raise InvalidInput(f"now is a datetime or milliseconds since 1970, not {given!r}")
    return check_count("now", given)


def _set_ttl(given: object) -> dict[str, Any]:
    ttl_ms = None if given is None else parse_duration(given, "ttl")
    return {"ttl_ms": ttl_ms, "window_ms": window_ms_for_ttl(ttl_ms)}


def _set_on_late(given: object) -> dict[str, Any]:
    if given not in ON_LATE:
        raise InvalidInput(f"on_late must be one of {', '.join(ON_LATE)}, not {given!r}")
    return {"on_late": given}


def _set_delete_on_empty(given: object) -> dict[str, Any]:
    seconds = check_count("delete_on_empty_secs", given)
    if seconds is None:
        raise InvalidInput("delete_on_empty_secs is a number of seconds; 0 is off")
    return {"delete_on_empty_ms": seconds * 1000}


_SETTERS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "ttl": _set_ttl,
    "writer_retention": lambda given: {
        "writer_retention_ms": parse_duration(given, "writer_retention")
    },
    "on_late": _set_on_late,
    "history": lambda given: {
        "history_ms": None if given is None else parse_duration(given, "history")
    },
    "delete_on_empty_secs": _set_delete_on_empty,
}
