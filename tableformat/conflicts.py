"""What `actions.apply` says when a change has to be made again for a newer head."""

from __future__ import annotations

from strandline.tableformat.errors import CommitConflict, StrandlineError


class MustRewrite(StrandlineError):
    """The files of a change no longer fit the head; whoever wants it has to make them again."""


class ReplacementLost(CommitConflict):
    """What was to be replaced is gone, or what was to replace it is: plan again."""
