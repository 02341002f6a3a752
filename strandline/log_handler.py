"""Log records as rows: a handler for Python's `logging`."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.tableformat.errors import StrandlineError
from strandline.writers.writer import Writer

if TYPE_CHECKING:
    from strandline.table import Table

LOG_SCHEMA: Final = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("level", pa.string()),
        pa.field("logger", pa.string()),
        pa.field("message", pa.string()),
        pa.field("exception", pa.string()),
    ]
)
_OWN_LOGGER: Final = "strandline"
_OWN_THREADS: Final = ("strandline", "fsspecIO")
"""Threads that store our rows. What they log would make new rows to be stored, without end."""
_TEXT: Final = logging.Formatter()


class LogHandler(logging.Handler):
    """Appends each record as a row: `ts, level, logger, message, exception`, and extra fields.

    Whatever of these the table has as a column is filled; `extra={"user": …}` fills `user`. A
    record that cannot be taken goes to `handleError`, as with every handler, and is counted.
    """

    def __init__(
        self,
        target: Table | Writer,
        level: int | str = logging.NOTSET,
        *,
        timeout: float | None = 0.0,
        **options: Any,
    ) -> None:
        """Log to a writer, or to a table through a writer of its own with these options.

        `timeout`: how long the program may wait in a log call while the writer's memory is full.
        """
        super().__init__(level)
        self.writer = target if isinstance(target, Writer) else target.writer(**options)
        self.dropped = 0
        """Records that could not be taken."""
        self._timeout = timeout
        self._inside = threading.local()
        self._names: tuple[pa.Schema, frozenset[str]] | None = None

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """None: the writer is safe to use from many threads, and a lock here could deadlock it."""
        self.lock = None

    def filter(self, record: logging.LogRecord) -> Any:
        """Leave out what is logged about storing log rows."""
        if record.name.partition(".")[0] == _OWN_LOGGER or getattr(self._inside, "emit", False):
            return False
        if threading.current_thread().name.startswith(_OWN_THREADS):
            return False
        return super().filter(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record; never raises."""
        self._inside.emit = True
        try:
            self.writer.append(self._row(record), timeout=self._timeout)
        except Exception:  # noqa: BLE001 - a log call must not break the program
            self.dropped += 1
            self.handleError(record)
        finally:
            self._inside.emit = False

    def _row(self, record: logging.LogRecord) -> dict[str, Any]:
        row = {
            **record.__dict__,
            "ts": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "exception": _TEXT.formatException(record.exc_info) if record.exc_info else None,
        }
        columns = self._columns()
        return {name: value for name, value in row.items() if name in columns}

    def _columns(self) -> frozenset[str]:
        schema = self.writer.schema
        if self._names is None or self._names[0] is not schema:
            self._names = schema, frozenset(schema.names)
        return self._names[1]

    def flush(self) -> None:
        """Commit what was taken; a table that cannot take it is told by `writer.stats()`."""
        with suppress(StrandlineError):  # close() says what is left
            self.writer.flush(self.writer.close_timeout_s)

    def close(self) -> None:
        """Close the writer."""
        self.writer.close()
        super().close()
