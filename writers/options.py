"""What a writer is told when it is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.arguments import check_options
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.windows import parse_duration
from strandline.writers.log import LogOptions

if TYPE_CHECKING:
    from strandline.writers.metrics import MetricsHook

ACKS: Final = ("wal", "committed", "buffered")
DEFAULT_MEMORY_BYTES: Final = 256 * 2**20


AUTO_COMPACT_AT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """When rows are acknowledged, when they are committed, and how much memory they may take."""

    ack: str = "wal"
    """What an append that has returned promises. `wal`: the rows survive the end of the process
    (with `fsync`, of the machine). `committed`: they are in the table. `buffered`: nothing yet."""
    flush_rows: int = 32_768
    flush_bytes: int = 64 * 2**20
    flush_age_ms: int = 5_000
    """How long the first row waits for others before all are committed."""
    flush_records: int | None = None
    """Appends in one commit at most; 1,000 for `ack="committed"`, otherwise any number."""
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """Rows that are not committed yet take about this much; appends then wait."""
    passive_memtables: int = 2
    """Memtables that wait for their commit, or are being committed, beside the one that fills."""
    timeout_s: float | None = None
    """How long an append waits for memory; None: as long as it takes."""
    close_timeout_s: float | None = 30.0
    fence: str | None = field(default=None, repr=False)
    log: LogOptions = field(default_factory=LogOptions)
    auto_compact: bool | int = False
    """From how many segments in the manifest on the writer compacts them; True: 64."""
    metrics: MetricsHook | None = field(default=None, repr=False)
    """Called after each flush with a name, a number and attributes; see docs/writer.md."""

    def __post_init__(self) -> None:
        if self.ack not in ACKS:
            raise InvalidInput(f"ack must be one of {', '.join(ACKS)}, not {self.ack!r}")
        if self.ack == "wal" and not self.log.enabled:
            raise InvalidInput(
                "ack='wal' promises a log that wal=False turns off; use ack='committed' or "
                "ack='buffered'"
            )
        if self.ack == "wal" and self.log.gathers:
            # Where each append promises the log, there is nothing to gather.
            object.__setattr__(self, "log", replace(self.log, flush_each_write=True))
        for name in ("flush_rows", "flush_bytes", "memory_bytes", "passive_memtables"):
            _check_positive(name, getattr(self, name))
        if self.metrics is not None and not callable(self.metrics):
            raise InvalidInput("metrics is a function that takes a name, a number and a dict")
        if type(self.auto_compact) is not bool:
            _check_positive("auto_compact", self.auto_compact)
        if self.flush_records is not None:
            _check_positive("flush_records", self.flush_records)
        for name in ("timeout_s", "close_timeout_s"):
            check_seconds(name, getattr(self, name))

    @property
    def compact_at(self) -> int | None:
        """Segments from which on the writer compacts; None: never."""
        if self.auto_compact is True:
            return AUTO_COMPACT_AT
        return max(2, self.auto_compact) if self.auto_compact else None

    @property
    def most_records(self) -> int | None:
        """Appends in one commit."""
        if self.flush_records is None and self.ack == "committed":
            return 1_000
        return self.flush_records

    @property
    def most_bytes(self) -> int:
        """Bytes in one commit, about; a producer that waits for its commit wants small ones."""
        return min(self.flush_bytes, 2**20) if self.ack == "committed" else self.flush_bytes


def check_seconds(name: str, value: object) -> None:
    """A time to wait; None has a meaning of its own everywhere."""
    if value is not None and (type(value) not in (int, float) or not value >= 0):  # type: ignore[operator] # just looked
        raise InvalidInput(f"{name} must be seconds, 0 or more, or None, not {value!r}")


def _check_positive(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise InvalidInput(f"{name} must be an integer of 1 or more, not {value!r}")


def make_options(
    *,
    ack: str = "wal",
    wal: object = None,
    flush_age: str | timedelta = timedelta(seconds=5),
    **rest: Any,
) -> WriterOptions:
    """Options from what a user writes.

    `wal`: a folder or URL, False for none, or a dict of the log's options.
    """
    known = {f.name for f in fields(WriterOptions)} - {"log", "flush_age_ms"}
    check_options("a writer", rest, known | {"wal", "flush_age"})
    return WriterOptions(
        ack=ack,
        log=log_options(wal),
        flush_age_ms=parse_duration(flush_age, "flush_age"),
        **rest,
    )


def log_options(wal: object) -> LogOptions:
    """A log's options from what a user writes."""
    if isinstance(wal, LogOptions):
        return wal
    if wal is None or wal is True:
        return LogOptions()
    if wal is False:
        return LogOptions(enabled=False)
    if isinstance(wal, (str, os.PathLike)):
        return LogOptions(dir=os.fspath(wal))
    if isinstance(wal, Mapping):
        given = dict(wal)
        if isinstance(given.get("dir"), os.PathLike):
            given["dir"] = os.fspath(given["dir"])
        check_options("wal", map(str, given), {f.name for f in fields(LogOptions)})
        return LogOptions(**given)
    raise InvalidInput(
        f"wal is a folder, a URL, False, or a dict of options, not {type(wal).__name__}"
    )
