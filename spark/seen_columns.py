"""The columns of a table as Spark saw them: plans keep names, and tables may change theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.tableformat import types
from strandline.tableformat.errors import InvalidInput, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.table import Table
    from strandline.tableformat.schema import Column, Schema

Seen = list[dict[str, Any]]
"""Ids, names and types, as the JVM keeps them: the version they are from may be gone by now."""


def seen_columns(schema: Schema) -> Seen:
    """What the JVM has to keep of the columns."""
    return [{"id": c.id, "name": c.name, "type": types.to_json(c.type)} for c in schema.columns]


def columns_now(seen: Sequence[Mapping[str, Any]], uuid: str, head: Table) -> dict[str, Column]:
    """The columns of today by the names that Spark knows them by.

    A rename is seen through; a column that is gone or has another type is an error.
    """
    if head.uuid != uuid:
        raise TableNotFound(
            f"the table at {head.url} was replaced by another one since Spark looked at it. "
            "Nothing was read or written. Say REFRESH TABLE, or load it again."
        )
    found: dict[str, Column] = {}
    for column in seen:
        now = head.manifest.schema.by_id.get(column["id"])
        if now is None or types.to_json(now.type) != column["type"]:
            raise InvalidInput(
                f"column {column['name']!r} of {head.url} was changed since Spark looked at the "
                "table. Nothing was read or written. Say REFRESH TABLE, and run it again."
            )
        found[column["name"]] = now
    return found


def check_names_hold(seen: Sequence[Mapping[str, Any]], uuid: str, head: Table) -> None:
    """Refuse rows under names that have come to mean other columns, or none."""
    for name, now in columns_now(seen, uuid, head).items():
        if now.name != name:
            raise InvalidInput(
                f"column {name!r} of {head.url} is called {now.name!r} since Spark looked at the "
                "table. Nothing was written. Say REFRESH TABLE, and run it again."
            )
