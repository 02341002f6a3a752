"""The names that users may rely on."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest

import strandline
import strandline.spark

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    """A name that appears or disappears is a decision, not an accident."""
    assert strandline.__all__ == PUBLIC
    assert strandline.spark.__all__ == [
        "JavaMissing",
        "JvmUnreachable",
        "attach",
        "backfill",
        "compact",
        "detach",
        "enable",
        "read",
        "read_stream_table",
        "read_users",
        "refresh",
        "register_source",
        "reindex",
        "save",
        "session",
        "sql",
        "verify",
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_explained(name: str) -> None:
    """Each has a docstring of its own, because `help(strandline)` is where people look."""
    found = getattr(strandline, name)

    assert inspect.getdoc(found)
    assert found.__doc__


def test_every_error_is_a_strandline_error() -> None:
    """One `except` catches all that the library raises."""
    errors = [
        found
        for name in PUBLIC
        if inspect.isclass(found := getattr(strandline, name)) and issubclass(found, Exception)
    ]

    assert len(errors) > 20
    assert all(issubclass(error, strandline.StrandlineError) for error in errors)


def test_every_table_method_is_explained() -> None:
    """Nothing on a table is left to guessing."""
    members = {name: m for name, m in vars(strandline.Table).items() if not name.startswith("_")}

    assert members
    assert [name for name, member in members.items() if not inspect.getdoc(member)] == []


def test_the_version_is_stated_once() -> None:
    """The package and its metadata agree."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert project["project"]["version"] == strandline.__version__
