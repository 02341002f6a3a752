"""Objects on their way to the store, before the commit that refers to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.tableformat.conflicts import MustRewrite
from strandline.tableformat.errors import OutcomeUnclear, StoreBusy

if TYPE_CHECKING:
    from strandline.tableformat.storage import PendingWrite


@dataclass(frozen=True, slots=True)
class Upload:
    """An object on its way. If the store loses track of it, it is written anew.

    Its name is never used again, so a late arrival is an orphan and nothing else.
    """

    write: PendingWrite

    def wait(self) -> None:
        try:
            self.write.wait()
        except (OutcomeUnclear, StoreBusy) as error:
            raise MustRewrite(f"an object was not stored: {error}") from None
