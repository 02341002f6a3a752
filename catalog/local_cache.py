"""Copies of immutable objects on this machine's disk, shared by all its processes.

Only a shortcut. Whatever is wrong with it (damaged, locked, full, read-only, not ours alone), it
answers "not here", and the store is asked. Nor is it believed: whoever takes bytes out of it
compares them with the checksum that a manifest gives.

One SQLite file in a folder of the user's own, bounded in bytes; what was used least recently
leaves first. A damaged file is not repaired: the next one gets a new number, because a process
that still has the old one open would remove the files beside it when it ends.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.catalog.page_cache import ObjectKey

DEFAULT_BYTES: Final = 2**30
LEAST_BYTES: Final = 2**20
BUSY_S: Final = 0.5
"""How long to wait for another process that is writing."""
REST_S: Final = 5.0
"""How long a cache that could not be used is left alone: each try may cost `BUSY_S`."""
TOUCH_AFTER_MS: Final = 60_000
"""How old a note of the last use may be: a write for every read would make readers wait."""
_PAGE_BYTES: Final = 4096
_KEYS_PER_QUERY: Final = 500
_FILE: Final = re.compile(r"objects-v1-([1-9][0-9]{0,8})\.sqlite")
_BESIDE: Final = ("", "-wal", "-shm")
_DAMAGED: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}
)
"""What SQLite says of a file that is not what was written: also a table that is not there."""
_PRIMARY_CODE: Final = 0xFF
_LAYOUT: Final = (
    """CREATE TABLE IF NOT EXISTS objects
       (key TEXT PRIMARY KEY NOT NULL, used INTEGER NOT NULL, data BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS by_use ON objects (used)",
)
_INHERITED: Final[list[sqlite3.Connection]] = []
"""Connections of a parent process. Closing them here would drop locks that are the parent's."""

T = TypeVar("T")


class Unusable(Exception):
    """The cache cannot be used as it is; the reason is shown to whoever asks."""


class LocalCache:
    """A bounded, shared, fallible store of bytes. Nothing here raises."""

    def __init__(
        self,
        folder: Path,
        limit_bytes: int = DEFAULT_BYTES,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self.problem: str | None = None
        """Why it could not be used when it was tried last; None: it could."""
        self._now_ms, self._monotonic = now_ms, monotonic
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        self._number = 0
        self._read_rest = self._write_rest = 0.0

    def __repr__(self) -> str:
        return f"<LocalCache {self.folder}, {self.limit_bytes} bytes at most>"

    def get(self, keys: Sequence[ObjectKey]) -> dict[ObjectKey, bytes]:
        """Those of the objects that are here, unverified."""
        by_text = {"\n".join(key): key for key in keys}
        found: dict[ObjectKey, bytes] = {}

        def look(db: sqlite3.Connection) -> None:
            aged = []
            oldest = self._now_ms() - TOUCH_AFTER_MS
            for texts in _in_parts(list(by_text)):
                marks = ",".join("?" * len(texts))
                query = f"SELECT key, used, data FROM objects WHERE key IN ({marks})"  # noqa: S608 - only question marks
                for text, used, data in db.execute(query, texts):
                    if text in by_text and type(data) is bytes:
                        found[by_text[text]] = data
                        if not oldest < used <= self._now_ms():
                            aged.append(text)
            if aged and not self._rests(writing=True):
                self._touch(db, aged)

        self._try(look)
        return found

    def put(self, objects: Mapping[ObjectKey, bytes]) -> bool:
        """Keep copies; False if that was not possible now."""
        fitting = [
            ("\n".join(key), data) for key, data in objects.items() if len(data) <= self._most_bytes
        ]

        def keep(db: sqlite3.Connection) -> bool:
            # Small transactions: the log beside the file counts too, and others may wait.
            for part in _by_size(fitting, self._most_bytes):
                _write(db, lambda part=part: self._insert(db, part))  # type: ignore[misc]
            return True

        return self._try(keep, writing=True) or False

    def distrust(self) -> None:
        """Begin anew: a copy turned out to be wrong, and who knows what else is."""
        with self._lock:
            self._begin_anew("a copy in it was wrong")

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            self._close()

    @property
    def _most_bytes(self) -> int:
        """No object may push out more than a fraction of all others."""
        return self.limit_bytes // 16

    # --- inside a connection ---

    def _touch(self, db: sqlite3.Connection, keys: list[str]) -> None:
        now = self._now_ms()
        update = "UPDATE objects SET used = ? WHERE key = ?"
        try:
            _write(db, lambda: db.executemany(update, [(now, key) for key in keys]))
        except sqlite3.OperationalError as error:
            # Read-only, or another process is writing: the order of leaving is a little wrong.
            self.problem = f"{self.folder}: {error}"
            self._write_rest = self._monotonic() + REST_S

    def _insert(self, db: sqlite3.Connection, part: Sequence[tuple[str, bytes]]) -> None:
        self._make_room(db, sum(len(data) + _PAGE_BYTES for _, data in part))
        now = self._now_ms()
        db.executemany(
            "INSERT OR REPLACE INTO objects (key, used, data) VALUES (?, ?, ?)",
            [(key, now, data) for key, data in part],
        )
        # An index may be damaged without SQLite noticing; then things go in and never come out.
        marks = ",".join("?" * len(part))
        query = f"SELECT count(*) FROM objects WHERE key IN ({marks})"  # noqa: S608 - see above
        if db.execute(query, [key for key, _ in part]).fetchone()[0] != len(part):
            raise ValueError("what was put in cannot be found")

    def _make_room(self, db: sqlite3.Connection, needed: int) -> None:
        """Remove what was used least recently until the rest and `needed` fit."""
        pages = _pragma(db, "page_count") - _pragma(db, "freelist_count")
        over = pages * _PAGE_BYTES + needed - self._file_bytes * 7 // 8
        gone = []
        if over > 0:
            for rowid, size in db.execute(
                "SELECT rowid, length(data) FROM objects ORDER BY used, rowid"
            ):
                gone.append((rowid,))
                over -= size
                if over <= 0:
                    break
        db.executemany("DELETE FROM objects WHERE rowid = ?", gone)

    @property
    def _file_bytes(self) -> int:
        """What is left for the file itself; the rest is for the log beside it."""
        return self.limit_bytes * 3 // 4

    # --- opening, and what can go wrong ---

    def _try(self, act: Callable[[sqlite3.Connection], T], *, writing: bool = False) -> T | None:
        """What the act gives; None if the cache is of no use now."""
        with self._lock:
            if self._rests(writing=writing):
                return None
            try:
                result = act(self._connection())
            except sqlite3.Error as error:
                if self._is_damage(error):
                    self._begin_anew(str(error))
                else:
                    self._rest(str(error), writing=writing)
            except (OSError, Unusable) as error:
                self._rest(str(error), writing=writing)
            except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
                # Such as text that is no text: damage that SQLite handed on to Python.
                self._begin_anew(str(error))
            else:
                if not self._rests(writing=True):
                    self.problem = None
                return result
            return None

    def _is_damage(self, error: sqlite3.Error) -> bool:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
        # A flipped bit in the header makes a file read-only that anybody could write to.
        false_refusal = code == sqlite3.SQLITE_READONLY and os.access(
            self._file(self._number), os.W_OK
        )
        return code in _DAMAGED or false_refusal

    def _rests(self, *, writing: bool) -> bool:
        until = self._write_rest if writing else self._read_rest
        return self._monotonic() < until

    def _rest(self, reason: str, *, writing: bool) -> None:
        """Leave it alone for a while; what cannot be written to can still be read."""
        self._close()
        self.problem = f"{self.folder}: {reason}"
        self._write_rest = self._monotonic() + REST_S
        if not writing:
            self._read_rest = self._write_rest

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and self._pid != os.getpid():
            _INHERITED.append(self._db)
            self._db = None
        if self._db is None:
            self._pid = os.getpid()
            self._db = self._open()
        return self._db

    def _open(self) -> sqlite3.Connection:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number = max(self._numbers(), default=1)
        file = self._file(self._number)
        _make_private(file)
        db = sqlite3.connect(
            f"file:{quote(str(file))}?mode=rw",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        log_bytes = self.limit_bytes // 8
        db.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        db.execute("PRAGMA cell_size_check=ON")
        if db.execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
            raise Unusable("this disk cannot be shared by processes (no write-ahead log)")
        if _pragma(db, "page_size") != _PAGE_BYTES:
            raise Unusable("it has another page size")
        # A copy that is lost in a power cut is fetched again.
        db.execute("PRAGMA synchronous=OFF")
        db.execute(f"PRAGMA wal_autocheckpoint={max(1, min(1000, log_bytes // 2 // _PAGE_BYTES))}")
        db.execute(f"PRAGMA journal_size_limit={log_bytes}")
        db.execute(f"PRAGMA max_page_count={self._file_bytes // _PAGE_BYTES}")
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'by_use'").fetchone():
            _write(db, lambda: [db.execute(part) for part in _LAYOUT])

    def _file(self, number: int) -> Path:
        return self.folder / f"objects-v1-{number}.sqlite"

    def _numbers(self) -> list[int]:
        found = (_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        return [int(match[1]) for match in found if match]

    def _begin_anew(self, reason: str) -> None:
        """Leave a damaged file: begin the next, and remove those before it."""
        self._close()
        self.problem = f"{self.folder} was damaged ({reason}) and is begun anew"
        self._read_rest = self._write_rest = 0.0
        try:
            _make_private(self._file(self._number + 1))
            for number in self._numbers():
                for ending in _BESIDE if number <= self._number else ():
                    Path(f"{self._file(number)}{ending}").unlink(missing_ok=True)
        except (OSError, Unusable) as error:
            self._rest(str(error), writing=False)

    def _close(self) -> None:
        if self._db is not None and self._pid == os.getpid():
            with suppress(sqlite3.Error):
                self._db.close()
        self._db = None


def _make_private(file: Path) -> None:
    """Create the file, or refuse one that others could have written."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        found = file.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise Unusable(f"{file.name} is not a file of this user") from None
        if found.st_mode & 0o022:
            raise Unusable(f"{file.name} can be written by other users") from None
        if found.st_mode & 0o077:
            file.chmod(0o600)


def _write(db: sqlite3.Connection, change: Callable[[], Any]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        change()
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def _in_parts(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[i : i + _KEYS_PER_QUERY] for i in range(0, len(texts), _KEYS_PER_QUERY)]


def _by_size(
    objects: Sequence[tuple[str, bytes]], most_bytes: int
) -> list[list[tuple[str, bytes]]]:
    """The objects in parts of about this size."""
    parts: list[list[tuple[str, bytes]]] = []
    room = 0
    for key, data in objects:
        if room < len(data) or not parts or len(parts[-1]) == _KEYS_PER_QUERY:
            parts.append([])
            room = most_bytes
        parts[-1].append((key, data))
        room -= len(data) + _PAGE_BYTES
    return parts
