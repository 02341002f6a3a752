"""How a filter names a column: by its name, or by the path to a field inside a struct.

A name is text, a path a tuple of names: `device.os` in filter text is `("device", "os")`. Text
with dots, as in `col("device.os")`, is left to binding, which knows whether a column or a field
is called so.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from strandline.tableformat.errors import InvalidInput

ColumnName = str | tuple[str, ...]

KEYWORDS: Final = frozenset(
    "AND OR NOT IN BETWEEN IS LIKE NULL TRUE FALSE NAN INFINITY".split()  # noqa: SIM905 - readable
)
_PLAIN_NAME: Final = re.compile(r"[^\W\d]\w*")


class Place(NamedTuple):
    """Where in a filter's text a column stands, for errors that point at it."""

    text: str
    position: int


def check_column(name: object) -> None:
    """Refuse what names neither a column nor a field."""
    if isinstance(name, tuple) and len(name) > 1:
        for part in name:
            _check_text(part, "the name of a field")
        return
    _check_text(name, "a column name")


def _check_text(name: object, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{what} must be a non-empty string, not {name!r}")


def name_text(name: ColumnName) -> str:
    """A column or a field as it stands in filter text."""
    return _quoted(name) if isinstance(name, str) else ".".join(map(_quoted, name))


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
