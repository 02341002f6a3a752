"""The columns every table has without naming them: position, event time and window of a row.

They can be filtered like any other column. Their ids are negative, so they never meet the id of a
column that a user added.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from strandline.tableformat.schema import Column
from strandline.tableformat.types import ColumnType

SEQ_ID: Final = -1
TS_ID: Final = -2
WINDOW_ID: Final = -3
DELETED_ID: Final = -4

MILLISECOND_IDS: Final = frozenset({TS_ID, WINDOW_ID})
"""Plain integers on storage, but moments in meaning: they compare with a time that has a zone."""


def _hidden(column_id: int, name: str, kind: str = "int64") -> Column:
    return Column(
        id=column_id, name=name, physical_name=name, type=ColumnType(kind), nullable=False
    )


HIDDEN_COLUMNS: Final = MappingProxyType(
    {
        "_seq": _hidden(SEQ_ID, "_seq"),
        "_ts": _hidden(TS_ID, "_ts"),
        "_window": _hidden(WINDOW_ID, "_window"),
    }
)
DELETED: Final = _hidden(DELETED_ID, "_deleted", "bool")
"""Whether a row of a keyed table is a tombstone. Streams have it if they are asked for it, and only
then do they have tombstones."""
