"""Strandline: a table format for event streams on object storage."""

from strandline.api import create_table, open_table
from strandline.table import Commit, Table, Tail
from strandline.tableformat.errors import (
    AccessDenied,
    CommitConflict,
    CommitStateUnknown,
    CommitTimeout,
    CorruptTable,
    Fenced,
    InvalidFilter,
    InvalidInput,
    InvalidRow,
    MissingFile,
    ReadOnlyTable,
    SeqMismatch,
    StorageFailed,
    StoreBusy,
    StrandlineError,
    TableExists,
    TableNotFound,
    TooManyWindows,
    UnsupportedFormat,
    UnsupportedStore,
    VersionNotFound,
    WriterPositionConflict,
    WriterPositionLost,
)
from strandline.tableformat.expressions import col

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "Commit",
    "CommitConflict",
    "CommitStateUnknown",
    "CommitTimeout",
    "CorruptTable",
    "Fenced",
    "InvalidFilter",
    "InvalidInput",
    "InvalidRow",
    "MissingFile",
    "ReadOnlyTable",
    "SeqMismatch",
    "StorageFailed",
    "StoreBusy",
    "StrandlineError",
    "Table",
    "TableExists",
    "TableNotFound",
    "Tail",
    "TooManyWindows",
    "UnsupportedFormat",
    "UnsupportedStore",
    "VersionNotFound",
    "WriterPositionConflict",
    "WriterPositionLost",
    "col",
    "create_table",
    "open_table",
]
