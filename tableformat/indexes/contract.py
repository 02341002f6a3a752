"""What every index kind offers: bytes when a column is written, a mask over zones when read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.types import ColumnType


@dataclass(frozen=True, slots=True)
class Built:
    """An index as it is stored: one blob, and small facts for the catalog."""

    data: bytes
    params: dict[str, Any] = field(default_factory=dict)


class ZoneIndex(Protocol):
    """An index that was read and found well-formed."""

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        """A mask over the zones, False only where certainly no row is TRUE; None: cannot tell."""


class JointIndex(ZoneIndex, Protocol):
    """An index that knows values, not only ends, and so gains from seeing leaves together.

    Of `x >= 5 AND x < 6` a zone with the values 1 and 9 satisfies each, but no value both.
    """

    def may_match_all(self, leaves: Sequence[Leaf]) -> NDArray[np.bool_] | None:
        """Likewise, for rows in which all these leaves on the column are TRUE."""


def mask_of_all(index: ZoneIndex, leaves: Sequence[Leaf]) -> NDArray[np.bool_] | None:
    """Zones that may hold a row in which all leaves on one column are TRUE, of any index."""
    # Not isinstance: of a protocol it takes longer than most indexes take to answer.
    if hasattr(index, "may_match_all"):
        return cast("JointIndex", index).may_match_all(leaves)
    return common(index.may_match(leaf) for leaf in leaves)


def common(masks: Iterable[NDArray[np.bool_] | None]) -> NDArray[np.bool_] | None:
    """Where all masks are True; those that cannot tell do not count. None: none can."""
    known = [mask for mask in masks if mask is not None]
    return None if not known else np.logical_and.reduce(known)


class Kind(Protocol):
    """One way to index a column."""

    @property
    def name(self) -> str:
        """As it stands in the catalog."""

    def build(self, column: ColumnZones) -> Built | None:
        """The index of a column; None where the column cannot have one of this kind."""

    def serves(self, leaf: Leaf) -> bool:
        """Whether it may say anything about such a leaf; asked before it is loaded."""

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> ZoneIndex:
        """The index from its stored form; CorruptTable if that is malformed.

        `kind` is the column's type of today, which may be wider than the one it was built with.
        """
