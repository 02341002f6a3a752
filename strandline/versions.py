"""Which version is meant: a number, the name of a tag, or a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from strandline.tableformat.errors import InvalidInput, VersionNotFound
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from strandline.catalog.chain import Chain, Snapshot
    from strandline.tableformat.manifest import Manifest


def check_version(version: int | str | None, as_of: datetime | str | int | None) -> int | None:
    """Refuse what names no version before anything is read; the moment in milliseconds."""
    if version is not None and as_of is not None:
        raise InvalidInput("give version or as_of, not both")
    if version is not None and type(version) not in (int, str):
        raise InvalidInput(f"version must be an integer or the name of a tag, not {version!r}")
    return None if as_of is None else milliseconds(as_of)


def find_version(
    chain: Chain, head: Snapshot, version: int | str | None, moment_ms: int | None
) -> Snapshot | None:
    """The version to be pinned; None for a live handle."""
    if version is not None:
        number = _tagged(head.manifest, version) if isinstance(version, str) else version
        return chain.at_version(number, head)
    return None if moment_ms is None else chain.as_of(moment_ms, head)


def _tagged(head: Manifest, name: str) -> int:
    tag = head.lifecycle.tags.get(name)
    if tag is None:
        known = ", ".join(sorted(head.lifecycle.tags)[:10]) or "none"
        raise VersionNotFound(f"the table has no tag {name!r}; its tags are: {known}")
    return tag.version


def milliseconds(given: object) -> int:
    """A moment as milliseconds since 1970; without a zone it is UTC."""
    if type(given) is int and 0 <= given <= INT64_MAX:
        return given
    moment = given
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            moment = None
    if not isinstance(moment, datetime):
        raise InvalidInput(
            f"as_of must be a datetime, ISO text such as '2026-01-31T12:00:00+00:00', or "
            f"milliseconds since 1970, not {given!r}"
        )
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # In whole numbers: seconds as a float lie a millisecond too early for some moments.
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
