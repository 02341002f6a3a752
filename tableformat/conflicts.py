"""What `actions.apply` says when a change has to be made again for a newer head."""

from __future__ import annotations

from strandline.tableformat.errors import StrandlineError


class MustRewrite(StrandlineError):
    """The files of a change no longer fit the head; whoever wants it has to make them again."""
