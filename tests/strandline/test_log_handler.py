"""Log records as rows."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from tests.tables import memory_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import S3Bucket

SCHEMA = strandline.LOG_SCHEMA.append(pa.field("user", pa.string()))


@pytest.fixture
def table() -> strandline.Table:
    """A table for log records with one column more."""
    return strandline.create_table(memory_url(), SCHEMA, time_column="ts")


@pytest.fixture
def handler(table: strandline.Table, tmp_path: Path) -> Iterator[strandline.LogHandler]:
    """A handler on the root logger, which hears everything."""
    made = strandline.LogHandler(table, writer_id="logs", wal=tmp_path / "wal", flush_age="1h")
    root = logging.getLogger()
    before = root.level
    root.addHandler(made)
    root.setLevel(logging.DEBUG)
    yield made
    root.removeHandler(made)
    root.setLevel(before)
    made.close()


def _rows(table: strandline.Table, **request: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan(**request).to_arrow().to_pylist()
    return rows


def _alone(handler: logging.Handler) -> logging.Logger:
    """A logger that only this handler hears: the test runner's own would fail with it."""
    log = logging.Logger("shop")  # noqa: LOG001 - beside the global tree
    log.addHandler(handler)
    return log


def test_records_become_rows(table: strandline.Table, handler: strandline.LogHandler) -> None:
    """Message, level, logger, time, traceback, and extra fields that are columns."""
    log = logging.getLogger("shop.cart")
    log.warning("%d items", 3, extra={"user": "ann", "no_column": object()})
    try:
        raise ValueError("broken")  # noqa: TRY301 - to be logged
    except ValueError:
        log.exception("failed")

    handler.flush()

    first, second = _rows(table)
    assert first["ts"].timestamp() > 0
    assert (first["level"], first["logger"], first["message"]) == (
        "WARNING",
        "shop.cart",
        "3 items",
    )
    assert (first["user"], first["exception"]) == ("ann", None)
    assert second["exception"].splitlines()[-1] == "ValueError: broken"


def test_nothing_is_raised_into_the_program(
    handler: strandline.LogHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record that does not fit, a bad format and a closed writer go to logging's own errors."""
    log = _alone(handler)
    log.info("x", extra={"user": 7})
    log.info("%d", "not a number")
    handler.close()
    log.info("late")

    told = capsys.readouterr().err
    assert "InvalidRow" in told
    assert "TypeError" in told
    assert "WriterClosed" in told
    assert handler.dropped == 3


def test_what_the_writer_logs_is_no_row(
    table: strandline.Table, handler: strandline.LogHandler
) -> None:
    """Its own loggers and its own threads are left out, or each row would make another."""
    logging.getLogger("strandline.writer").warning("about a flush")
    logging.getLogger("strandline").warning("about a table")
    for name in ("strandline-wal", "fsspecIO"):
        thread = threading.Thread(
            target=logging.getLogger("s3fs").debug, args=("a request",), name=name
        )
        thread.start()
        thread.join()
    logging.getLogger("strandlined").info("somebody else")

    handler.flush()

    assert [row["message"] for row in _rows(table)] == ["somebody else"]


def test_a_value_that_logs_when_it_is_formatted_does_not_recurse(
    table: strandline.Table, handler: strandline.LogHandler
) -> None:
    """What is logged inside the handler is left out."""

    class Chatty:
        def __str__(self) -> str:
            log.info("inner %s", self)
            return "chatty"

    log = _alone(handler)
    log.info("outer %s", Chatty())
    handler.flush()

    assert [row["message"] for row in _rows(table)] == ["outer chatty"]


def test_close_commits_and_closes_a_given_writer(table: strandline.Table, tmp_path: Path) -> None:
    """`logging.shutdown` closes handlers, so no record is left behind."""
    writer = table.writer("logs", wal=tmp_path / "wal", flush_age="1h")
    handler = strandline.LogHandler(writer, logging.INFO)
    log = _alone(handler)
    log.info("kept")
    log.debug("below the level")

    handler.close()

    assert [row["message"] for row in _rows(table)] == ["kept"]
    with pytest.raises(strandline.WriterClosed):
        writer.append({"message": "late"})


@pytest.mark.parametrize("on_s3", [False, pytest.param(True, marks=pytest.mark.s3)])
def test_a_program_that_just_ends_has_its_records_committed(
    tmp_path: Path, request: pytest.FixtureRequest, *, on_s3: bool
) -> None:
    """[T9] `logging` closes its handlers when the interpreter no longer starts threads."""
    options = None
    url = str(tmp_path / "table")
    if on_s3:
        bucket: S3Bucket = request.getfixturevalue("s3_bucket")
        url, options = bucket.url, bucket.storage_options
    table = strandline.create_table(
        url, SCHEMA, time_column="ts", shard_by="message", shards=4, storage_options=options
    )
    program = f"""
import logging, strandline
table = strandline.open_table({url!r}, storage_options={options!r})
handler = strandline.LogHandler(table, writer_id="logs", wal={str(tmp_path / "wal")!r})
logging.getLogger("shop").addHandler(handler)
for n in range(20):
    logging.getLogger("shop").warning("%d items left", n)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [row["message"] for row in _rows(table)] == [f"{n} items left" for n in range(20)]
    assert list((tmp_path / "wal").iterdir()) == []
