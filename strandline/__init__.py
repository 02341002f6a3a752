"""Strandline: a table format for event streams on object storage."""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _find_spec("strandline.tableformat") is None:
    raise ImportError(
        "Python found the source folder ./strandline before the installed package. Leave the "
        "repository's root, or install it for development: pip install -e ."
    )

from strandline.api import create_table, open_table
from strandline.reading import Tail
from strandline.table import Table
from strandline.tableformat.errors import (
    AccessDenied,
    BeyondTail,
    CommitConflict,
    CommitStateUnknown,
    CommitTimeout,
    CorruptTable,
    DamagedLog,
    Fenced,
    ImplausibleExpiry,
    InvalidFilter,
    InvalidInput,
    InvalidRow,
    LateRows,
    LogFailed,
    LogInUse,
    MissingFile,
    NamespaceNotFound,
    ReadOnlyTable,
    SeqMismatch,
    StorageFailed,
    StoreBusy,
    StrandlineError,
    TableDropped,
    TableExists,
    TableNotFound,
    TooManyWindows,
    UnknownPayload,
    UnsupportedFormat,
    UnsupportedStore,
    VersionNotFound,
    WriterBusy,
    WriterClosed,
    WriterFenced,
    WriterPositionConflict,
    WriterPositionLost,
)
from strandline.tableformat.expressions import Expression, col

if _TYPE_CHECKING:
    from strandline.catalogs import Catalog, NamespaceInfo, TableInfo
    from strandline.log_handler import LOG_SCHEMA, LogHandler
    from strandline.maintenance.doctor import DoctorReport, doctor
    from strandline.maintenance.snapshots import (
        Replayed,
        SnapshotInfo,
        inspect_snapshot,
        replay,
    )
    from strandline.maintenance.verify import VerifyReport
    from strandline.readers.follow import Follow
    from strandline.readers.payloads import PayloadRegistry
    from strandline.readers.reading import Reading
    from strandline.streams.table import PutResult, StreamExpiry, StreamTable
    from strandline.users import UsersTable, UserTable
    from strandline.writers.async_writer import AsyncReceipt, AsyncWriter
    from strandline.writers.receipts import Receipt
    from strandline.writers.recovery import Recovered
    from strandline.writers.results import Commit
    from strandline.writers.stats import CloseReport, WriterStats
    from strandline.writers.writer import Writer

__version__ = "0.1.0"

_LATER = {
    "Catalog": "strandline.catalogs",
    "NamespaceInfo": "strandline.catalogs",
    "TableInfo": "strandline.catalogs",
    "DoctorReport": "strandline.maintenance.doctor",
    "doctor": "strandline.maintenance.doctor",
    "VerifyReport": "strandline.maintenance.verify",
    "UsersTable": "strandline.users",
    "UserTable": "strandline.users",
    "Commit": "strandline.writers.results",
    "LOG_SCHEMA": "strandline.log_handler",
    "LogHandler": "strandline.log_handler",
    "PayloadRegistry": "strandline.readers.payloads",
    "AsyncReceipt": "strandline.writers.async_writer",
    "AsyncWriter": "strandline.writers.async_writer",
    "Follow": "strandline.readers.follow",
    "Reading": "strandline.readers.reading",
    "Receipt": "strandline.writers.receipts",
    "Replayed": "strandline.maintenance.snapshots",
    "SnapshotInfo": "strandline.maintenance.snapshots",
    "inspect_snapshot": "strandline.maintenance.snapshots",
    "replay": "strandline.maintenance.snapshots",
    "Recovered": "strandline.writers.recovery",
    "PutResult": "strandline.streams.table",
    "StreamExpiry": "strandline.streams.table",
    "StreamTable": "strandline.streams.table",
    "CloseReport": "strandline.writers.stats",
    "WriterStats": "strandline.writers.stats",
    "Writer": "strandline.writers.writer",
}
"""Loaded when used: a program that opens one table to read would pay for half of it in vain."""


def __getattr__(name: str) -> _Any:
    if name not in _LATER:
        raise AttributeError(f"module 'strandline' has no attribute {name!r}")
    return getattr(_import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "LOG_SCHEMA",
    "AccessDenied",
    "AsyncReceipt",
    "AsyncWriter",
    "BeyondTail",
    "Catalog",
    "CloseReport",
    "Commit",
    "CommitConflict",
    "CommitStateUnknown",
    "CommitTimeout",
    "CorruptTable",
    "DamagedLog",
    "DoctorReport",
    "Expression",
    "Fenced",
    "Follow",
    "ImplausibleExpiry",
    "InvalidFilter",
    "InvalidInput",
    "InvalidRow",
    "LateRows",
    "LogFailed",
    "LogHandler",
    "LogInUse",
    "MissingFile",
    "NamespaceInfo",
    "NamespaceNotFound",
    "PayloadRegistry",
    "PutResult",
    "ReadOnlyTable",
    "Reading",
    "Receipt",
    "Recovered",
    "Replayed",
    "SeqMismatch",
    "SnapshotInfo",
    "StorageFailed",
    "StoreBusy",
    "StrandlineError",
    "StreamExpiry",
    "StreamTable",
    "Table",
    "TableDropped",
    "TableExists",
    "TableInfo",
    "TableNotFound",
    "Tail",
    "TooManyWindows",
    "UnknownPayload",
    "UnsupportedFormat",
    "UnsupportedStore",
    "UserTable",
    "UsersTable",
    "VerifyReport",
    "VersionNotFound",
    "Writer",
    "WriterBusy",
    "WriterClosed",
    "WriterFenced",
    "WriterPositionConflict",
    "WriterPositionLost",
    "WriterStats",
    "col",
    "create_table",
    "doctor",
    "inspect_snapshot",
    "open_table",
    "replay",
]
