"""What can go wrong with one operation, as small values that name a case."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class SimulatedCrash(BaseException):
    """The process has ended here. Not an Exception: nothing in the library may swallow it."""


class Kind(Enum):
    """How an operation goes wrong."""

    FAIL_BEFORE = "fail_before"
    """It is refused and not done."""
    LOSE_REPLY = "lose_reply"
    """It is done, and the caller never hears of it."""
    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"
    LAND_LATE = "land_late"
    """The caller hears nothing, and it is done later: see `Fault.lands`."""
    CRASH_IN_FLIGHT = "crash_in_flight"
    """The process ends while the request is on its way, and it is done later."""
    THROTTLE = "throttle"
    """The store is busy and asks to come again."""
    DENY = "deny"
    """The store refuses the credentials."""


class Landing(Enum):
    """When a late write arrives, if not after a number of operations."""

    AT_RESTART = "restart"
    AFTER_REOPEN = "reopen"
    """When the restarted process has read the head, and before it writes."""


FOR_EVER: Final = 10**9


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to go wrong, for one operation or for several in a row."""

    kind: Kind
    times: int = 1
    code: int = 503
    """What a throttling store answers."""
    lands: int | Landing = Landing.AT_RESTART
    """After how many further operations a late write arrives."""

    def __str__(self) -> str:
        name = self.kind.value
        if self.kind is Kind.THROTTLE:
            name += f"_{self.code}"
        if self.kind in (Kind.LAND_LATE, Kind.CRASH_IN_FLIGHT):
            name += f"_{self.lands.value if isinstance(self.lands, Landing) else self.lands}"
        if self.times != 1:
            name += "_for_ever" if self.times == FOR_EVER else f"_x{self.times}"
        return name


FAIL_BEFORE: Final = Fault(Kind.FAIL_BEFORE)
LOSE_REPLY: Final = Fault(Kind.LOSE_REPLY)
LOSE_EVERY_REPLY: Final = Fault(Kind.LOSE_REPLY, times=FOR_EVER)
OUTAGE: Final = Fault(Kind.FAIL_BEFORE, times=FOR_EVER)
CRASH_BEFORE: Final = Fault(Kind.CRASH_BEFORE)
CRASH_AFTER: Final = Fault(Kind.CRASH_AFTER)
DENY: Final = Fault(Kind.DENY)
BUSY: Final = tuple(Fault(Kind.THROTTLE, code=code) for code in (503, 429))
CONFLICTING: Final = Fault(Kind.THROTTLE, code=409)
"""S3's answer to two conditional writes at the same moment: nothing was decided, try again."""
BUSY_FOR_LONG: Final = Fault(Kind.THROTTLE, times=12)
BUSY_FOR_EVER: Final = Fault(Kind.THROTTLE, times=FOR_EVER)
LATE: Final = tuple(
    Fault(Kind.LAND_LATE, lands=lands)
    for lands in (1, 2, 4, Landing.AT_RESTART, Landing.AFTER_REOPEN)
)
IN_FLIGHT: Final = tuple(Fault(Kind.CRASH_IN_FLIGHT, lands=lands) for lands in Landing)

_ANY: Final = (FAIL_BEFORE, LOSE_REPLY, CRASH_BEFORE, CRASH_AFTER, DENY, *BUSY, BUSY_FOR_LONG)
_WRITE: Final = (*_ANY, CONFLICTING, *LATE, *IN_FLIGHT)
FAULTS_OF: Final[dict[str, tuple[Fault, ...]]] = {
    "read": (*_ANY, OUTAGE),
    "read_ranges": _ANY,
    "size": _ANY,
    "list": (*_ANY, OUTAGE),
    "walk": _ANY,
    "folders": _ANY,
    "abort_uploads": _ANY,
    "write_new": _WRITE,
    # What goes wrong with a write is told by its wait; the wait itself can only be interrupted.
    "wait": (CRASH_BEFORE, CRASH_AFTER),
    "put_if_absent": (*_WRITE, LOSE_EVERY_REPLY, OUTAGE, BUSY_FOR_EVER),
    "delete": (*_ANY, *LATE, *IN_FLIGHT),
}
"""Every fault that each kind of operation is put through."""
