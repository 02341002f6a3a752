"""What a catalog tells of its namespaces and tables, and how it takes pages of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.tableformat import names
from strandline.tableformat.arguments import check_count

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table of a catalog, as listed; times are milliseconds since 1970."""

    namespace: str
    name: str
    uuid: str
    url: str
    created_at: int
    deleted_at: int | None = None
    """When it was dropped; None for a table that is there."""

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """One namespace, as listed."""

    name: str
    created_at: int
    defaults: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return asdict(self)


def checked_prefix(given: object) -> str:
    """What names may begin with; nothing is fine."""
    return given if given == "" and isinstance(given, str) else names.check_name(given, "prefix")


def taken(groups: Iterator[list[T]], limit: int | None) -> list[T]:
    """The first groups, each one whole, until they hold so many: no name is on two pages."""
    check_count("limit", limit)
    page: list[T] = []
    while limit is None or len(page) < limit:
        group = next(groups, None)
        if group is None:
            break
        page += group
    return page
