"""The change that puts segments in the place of others: what has moved meanwhile is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.catalog.locating import place_replacement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.catalog.chain import Chain
    from strandline.catalog.locating import Replacement
    from strandline.tableformat.actions import Action
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import PendingWrite


class ReplacementChange:
    """Fails with `CommitConflict` once a segment that was to go is no longer in the table.

    The new segments must be in the store: they are not written again.
    """

    actions: tuple[Action, ...]
    pending: tuple[PendingWrite, ...]

    def __init__(
        self,
        chain: Chain,
        head: Manifest,
        replacement: Replacement,
        *,
        conditions: Sequence[Action] = (),
    ) -> None:
        """`conditions`: actions that come first and may refuse."""
        self._chain, self._replacement, self._conditions = chain, replacement, tuple(conditions)
        self._place(head)

    def _place(self, head: Manifest) -> None:
        action, self.pending = place_replacement(self._chain, head, self._replacement)
        self.actions = (*self._conditions, action)

    def rewrite(self, head: Manifest) -> ReplacementChange:
        """The same segments, where this head lists them."""
        self._place(head)
        return self
