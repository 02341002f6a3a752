"""A signal breaks an append off at any point, and the program goes on with its writer."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from strandline.writers import buffers
from tests.writers.rigs import Rig, crash, event, flush_once, numbers, without_threads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

WRITERS = str(Path(buffers.__file__).parent)


class Interrupt(BaseException):
    """What a signal's handler raises."""


class Alarm:
    """Raises at the n-th moment at which Python would run a signal's handler.

    Those are, in the code of writers and of what they lock with, the beginning of a function and
    the end of a call into C.
    """

    def __init__(self, moment: int) -> None:
        self.left = moment

    def __enter__(self) -> Self:
        sys.setprofile(self.count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def count(self, frame: FrameType, what: str, argument: object) -> None:
        """Raise when it is time."""
        del argument
        name = frame.f_code.co_filename
        if what in ("call", "c_return") and name.startswith((WRITERS, threading.__file__)):
            self.left -= 1
            if self.left == 0:
                raise Interrupt


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    with without_threads():
        yield


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("row", {}),
        ("row", {"ack": "buffered", "wal": {"buffered": True}}),
        ("row", {"wal": {"fsync": True}}),
        ("batch", {}),
        ("batch", {"wal": {"fsync": True}}),
    ],
)
def test_an_append_may_be_broken_off_anywhere(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    """[E2] [E15] Its rows are taken or not; the writer works on, and its log can be replayed.

    Each round has a few appends of which one is broken off. Every third append fills a memtable,
    so that the log is rotated, too.
    """
    wal = {"dir": str(tmp_path / "wal"), **options.get("wal", {})}
    settings = {"flush_records": 3, "flush_age": "1h", **options, "wal": wal}
    for position in (1, 2):
        moment, broken_off = 1, True
        while broken_off:
            rig = Rig()
            writer = rig.table.writer("w", **settings)
            certain: list[int] = []
            for n in range(6):
                own = [n] if kind == "row" else [n, n + 100]
                rows = [event(i) for i in own]
                try:
                    with Alarm(moment if n == position else 0):
                        writer.append(rows[0] if kind == "row" else rows)
                    certain += own
                except Interrupt:
                    doubtful = own
            flush_once(writer)
            assert writer._log is not None  # noqa: SLF001
            writer._log.flush()  # noqa: SLF001 - what was only gathered was not promised
            crash(writer)
            rig.open().recover("w", wal)

            broken_off = len(certain) < 6 * len(rows)
            found = numbers(rig.open().scan())
            assert [n for n in found if n in certain] == certain, moment
            assert len(found) == len(set(found)), moment
            assert set(found) - set(certain) in (set(), set(doubtful) if broken_off else set())
            moment += 1
        assert moment > 20
