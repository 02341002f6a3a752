"""A scan that gives less: what another engine asks of one, as a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.tableformat.expressions import all_of
from strandline.tableformat.filter_parser import filter_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.readers.scan import Scan
    from strandline.tableformat.expressions import Expression


def narrowed(scan: Scan, columns: Sequence[str], filter: Expression | None) -> Scan:  # noqa: A002
    """The scan with these columns of it, and at most without rows where the filter is not true.

    The first ten rows are not the first ten that match, so a scan with a limit keeps all rows:
    whoever asks must filter them.
    """
    if filter is None or scan.request.limit is not None:
        return scan.changed(columns=list(columns))
    own = scan.request.filter
    terms = [filter] if own is None else [filter_from(own), filter]
    return scan.changed(columns=list(columns), filter=all_of(terms))
