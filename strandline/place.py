"""A table's handle as its other halves use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.catalog.chain import Chain, Snapshot
    from strandline.table import Table


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where commits go; what either side sees, both have seen."""

    table: Table

    @property
    def chain(self) -> Chain:
        return self.table._chain  # noqa: SLF001 - the other half of that class

    @property
    def head(self) -> Snapshot:
        return self.table._head  # noqa: SLF001

    def see(self, snapshot: Snapshot) -> None:
        self.table._see(snapshot)  # noqa: SLF001
