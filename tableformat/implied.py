"""What is known of another engine's predicate: a filter of ours that holds wherever it does.

To read less before the other engine decides about rows, a filter is enough that keeps every row
it may want. Parts that have no counterpart here may then be left out of an AND; under NOT only
what is known exactly can be used, because NOT turns "at most there" into "at least there".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.tableformat.expressions import Expression


@dataclass(frozen=True, slots=True)
class Implied:
    """The predicate is true at most where `expression` is; None: nothing is known."""

    expression: Expression | None
    exact: bool = True
    """The predicate is also false and null exactly where `expression` is."""

    def __and__(self, other: Implied) -> Implied:
        if self.expression is None:
            return Implied(other.expression, exact=False)
        if other.expression is None:
            return Implied(self.expression, exact=False)
        return Implied(self.expression & other.expression, exact=self.exact and other.exact)

    def __or__(self, other: Implied) -> Implied:
        if self.expression is None or other.expression is None:
            return UNKNOWN
        return Implied(self.expression | other.expression, exact=self.exact and other.exact)

    def __invert__(self) -> Implied:
        if self.expression is None or not self.exact:
            return UNKNOWN
        return Implied(~self.expression)


UNKNOWN = Implied(None, exact=False)
