"""What users may say to `format("strandline")`, checked, and how credentials travel with it.

Spark writes options into plans and event logs. So credentials are no options: they come from the
worker's environment (`env:NAME`), from what the machine is allowed to do, or they are sealed into
the registered class, which travels between processes and is printed nowhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from strandline.api import open_table
from strandline.readers.planner import check_scope
from strandline.tableformat.errors import InvalidInput, TableNotFound
from strandline.tableformat.literals import parse_moment
from strandline.tableformat.redaction import is_harmless_option
from strandline.tableformat.stores.urls import absolute_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.table import Table

STORAGE: Final = "storage."
_ENVIRONMENT: Final = "env:"
_READING: Final = (
    "columns hiddencolumns allrows filter starttime endtime startseq endseq versionasof "
    "timestampasof splitbytes"
)
_STREAMING: Final = "startingversion startingtimestamp maxfilespertrigger maxbytespertrigger"
_WRITING: Final = "txnappid txnversion timecolumn ttl mode checkpointlocation"
_KNOWN: Final = frozenset(f"path url {_READING} {_STREAMING} {_WRITING}".split())
_TRUE_NAMES: Final = (
    "columns, hiddenColumns, allRows, filter, startTime, endTime, startSeq, endSeq, versionAsOf, "
    "timestampAsOf, "
    "startingVersion, startingTimestamp, maxFilesPerTrigger, maxBytesPerTrigger, splitBytes, "
    "txnAppId, txnVersion, timeColumn, ttl, storage.<name>"
)


class Sealed:
    """Storage options on their way to a worker: never shown, whoever prints what holds them."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})

    def __repr__(self) -> str:
        return "Sealed(***)" if self._options else "Sealed()"

    def opened(self) -> dict[str, Any]:
        """The options themselves, for the store alone."""
        return dict(self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sealed, (self._options,)


@dataclass(frozen=True)
class SourceOptions:
    """The options of one read or write, by lower-case names, as Spark hands them over."""

    url: str
    given: dict[str, str] = field(repr=False)
    sealed: Sealed = field(default_factory=Sealed)

    def storage_options(self) -> dict[str, Any]:
        """How to open the store, in the process that asks."""
        options = self.sealed.opened()
        for key, value in self.given.items():
            if key.startswith(STORAGE):
                options[key.removeprefix(STORAGE)] = _resolved(key, value)
        return options

    def open(self, version: int | None = None) -> Table:
        """The table: live, or at a version."""
        return _of_rows(open_table(self.url, version, storage_options=self.storage_options()))

    def open_as_of(self, moment_ms: int) -> Table:
        """The table as it was at a time."""
        return _of_rows(
            open_table(self.url, as_of=moment_ms, storage_options=self.storage_options())
        )

    def exists(self) -> bool:
        """Whether there is a table."""
        try:
            self.open()
        except TableNotFound:
            return False
        return True

    def text(self, name: str) -> str | None:
        """An option as it was given."""
        return self.given.get(name.lower())

    def count(self, name: str) -> int | None:
        """An option that is a number of 0 or more."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal():
            raise InvalidInput(f"option {name} must be an integer of 0 or more, not {text!r}")
        return int(text)

    def moment_ms(self, name: str) -> int | None:
        """An option that is a time: milliseconds since 1970, or ISO text (UTC without a zone)."""
        text = self.text(name)
        if text is None:
            return None
        if text.strip().isdecimal():
            return int(text)
        try:
            moment = parse_moment(text)
        except ValueError as error:
            raise InvalidInput(f"option {name}: {error}") from None
        return milliseconds(moment)

    def flag(self, name: str) -> bool:
        """An option that is true or false."""
        text = (self.text(name) or "false").lower()
        if text not in ("true", "false"):
            raise InvalidInput(f"option {name} must be true or false, not {text!r}")
        return text == "true"

    @property
    def columns(self) -> list[str] | None:
        """The columns to read; None: all."""
        text = self.text("columns")
        if text is None:
            return None
        return [name.strip() for name in text.split(",") if name.strip()]


def milliseconds(moment: date | datetime) -> int:
    """A date or a time as milliseconds since 1970, without a zone in UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def read_options(given: Mapping[str, str], sealed: Sealed | None = None) -> SourceOptions:
    """Check what a user has said; an option that nobody knows may be a misspelt one."""
    # Spark itself hands them over in lower case on some roads.
    known = {key.lower(): str(value) for key, value in given.items()}
    unknown = sorted(
        k for k in known if k not in _KNOWN and not k.startswith(STORAGE) and not _is_sparks(k)
    )
    if unknown:
        raise InvalidInput(
            f"option {unknown[0]!r} is not known. Nothing was read or written. Known are: "
            f"{_TRUE_NAMES}."
        )
    url = known.get("path") or known.get("url")
    if not url:
        raise InvalidInput("say where the table lies: .load(url) or .save(url)")
    for key, value in known.items():
        if key.startswith(STORAGE):
            _check_is_no_secret(key, value)
    # Workers run in a folder of their own.
    return SourceOptions(absolute_url(url), known, sealed or Sealed())


def _is_sparks(key: str) -> bool:
    """What Spark adds by itself."""
    return key.startswith(("__", "spark.", "queryname", "paths"))


def _check_is_no_secret(key: str, value: str) -> None:
    if value.startswith(_ENVIRONMENT) or is_harmless_option(key.removeprefix(STORAGE), value):
        return
    raise InvalidInput(
        f"option {key} may be a credential, and Spark shows options in plans and event logs. "
        f"Nothing was read or written. Set it to {_ENVIRONMENT}NAME for an environment variable of "
        "the workers, or hand it to strandline.spark.register_source(spark, storage_options=…)."
    )


def _resolved(key: str, value: str) -> str:
    if not value.startswith(_ENVIRONMENT):
        return value
    name = value.removeprefix(_ENVIRONMENT)
    found = os.environ.get(name)
    if found is None:
        raise InvalidInput(
            f"option {key} names the environment variable {name}, which is not set in the process "
            "that reads it. Set it for the driver and the executors (spark.executorEnv)."
        )
    return found


def _of_rows(table: Table) -> Table:
    check_scope(table.manifest)
    return table
