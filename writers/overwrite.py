"""An append that takes the place of all rows before it, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.tableformat.replacing import RemoveAll

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.tableformat.actions import Action
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import PendingWrite
    from strandline.writers.append import AppendChange


class OverwriteChange:
    """Whatever version it lands on: that version's rows go, and these come."""

    def __init__(self, append: AppendChange) -> None:
        self._append = append

    @property
    def actions(self) -> Sequence[Action]:
        return (RemoveAll(), *self._append.actions)

    @property
    def pending(self) -> Sequence[PendingWrite]:
        """The new rows' files."""
        return self._append.pending

    def rewrite(self, head: Manifest) -> OverwriteChange:
        """The same rows in new files."""
        self._append.rewrite(head)
        return self
