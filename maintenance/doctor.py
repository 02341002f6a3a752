"""What a store can and cannot do for a table, checked one promise at a time.

A failing check is a finding, not an exception: whoever runs a doctor wants the whole list.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.chain import Chain
from strandline.tableformat import paths
from strandline.tableformat.errors import StrandlineError, TableNotFound
from strandline.tableformat.manifest import FORMAT_VERSION
from strandline.tableformat.redaction import redact
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.probe import probe

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from strandline.tableformat.storage import Storage

OK: Final = "ok"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
MAX_SKEW_MS: Final = 60_000
"""Expiry and `as_of` go by the store's clock; a minute is more than any healthy machine is off."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: str
    """ok, failed or skipped."""
    message: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Everything that was looked at, in order."""

    url: str | None
    """None where the URL itself was refused; it may hold a secret then."""
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.status != FAILED for check in self.checks)

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        return "\n".join(f"{c.status:<7}  {c.name:<{width}}  {c.message}" for c in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        checks = [
            {"name": check.name, "status": check.status, "message": check.message}
            for check in self.checks
        ]
        return {"url": self.url, "ok": self.ok, "checks": checks}


class _Skip(Exception):
    """A check that cannot be made, or that was not asked for."""


def doctor(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    read_only: bool = False,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> DoctorReport:
    """Check a store and the table at this URL; never raises for what it finds.

    Two small objects are written below `_strandline/probe/` and removed again, unless `read_only`.
    """
    checks = [_libraries()]
    storage: Storage | None = None

    def opened() -> str:
        nonlocal storage
        storage = open_storage(url, storage_options)
        return f"{storage.url} can hold a table"

    checks.append(_check("url", opened))
    if storage is not None:
        checks += _store_checks(storage, read_only=read_only, now_ms=now_ms)
    return DoctorReport(None if storage is None else storage.url, tuple(checks))


def _libraries() -> Check:
    # Heavy to import, and `import strandline` brings this module along.
    from importlib import metadata  # noqa: PLC0415

    found = ", ".join(f"{name} {metadata.version(name)}" for name in ("pyarrow", "numpy", "fsspec"))
    return Check("libraries", OK, f"Python {platform.python_version()}, {found}")


def _store_checks(
    storage: Storage, *, read_only: bool, now_ms: Callable[[], int]
) -> tuple[Check, ...]:
    reached = False

    def reach() -> str:
        nonlocal reached
        storage.list(paths.MANIFESTS, limit=1)
        reached = True
        return "the store answers and lets this user list"

    def create() -> str:
        if read_only:
            raise _Skip("not asked for: it would write to the store")
        probe(storage)
        return "of two creates of one name exactly one wins, and a list shows the winner at once"

    def clock() -> str:
        skew = storage.clock_ms() - now_ms()
        if abs(skew) > MAX_SKEW_MS:
            raise StrandlineError(
                f"the store's clock is {abs(skew) / 1000:.0f} s "
                f"{'ahead of' if skew > 0 else 'behind'} this machine's; expiry and as_of go by "
                "the store's clock, so one of the two should be set right"
            )
        return f"the store's clock and this machine's agree within {MAX_SKEW_MS // 1000} s"

    def table() -> str:
        try:
            head = Chain(storage).find_head().manifest
        except TableNotFound:
            raise _Skip("there is no table here yet") from None
        return (
            f"format {FORMAT_VERSION}, version {head.version}, {head.next_seq} rows appended so "
            f"far, {len(head.schema.columns)} columns"
        )

    first = _check("reach", reach)
    if not reached:
        rest = ("create", "clock", "table")
        return (first, *(Check(name, SKIPPED, "the store was not reached") for name in rest))
    # The table comes before the probe: its head has then been read without anything written.
    found = _check("table", table)
    return (first, found, _check("create", create), _check("clock", clock))


def _check(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, OK, look())
    except _Skip as reason:
        return Check(name, SKIPPED, str(reason))
    except Exception as error:  # noqa: BLE001 - every failure is a finding
        what = "" if isinstance(error, StrandlineError) else f"{type(error).__name__}: "
        return Check(name, FAILED, redact(f"{what}{error}"))
