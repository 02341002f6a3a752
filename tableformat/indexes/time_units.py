"""In which unit a column counts time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from strandline.tableformat.types import ColumnType

_UNITS: Final = {"date": "day", "timestamp": "us", "timestamptz": "us", "int64": "ms"}


def unit_of(kind: ColumnType) -> str | None:
    """The unit of a column of this type if it holds times; None if it cannot."""
    return _UNITS.get(kind.name)
