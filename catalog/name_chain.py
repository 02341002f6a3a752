"""Chains of catalog records in a store: find the newest one, create the next one.

All records of a folder lie side by side, `<flat name>!<20 digits>.json.lz4`, newest first for each
name: one listing finds a name's newest record or a page of names. `!` sorts before every character
of a flat name, so names come in their own order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from strandline.tableformat import names
from strandline.tableformat.errors import (
    CommitStateUnknown,
    CorruptTable,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
)
from strandline.tableformat.paths import MANIFEST_SUFFIX
from strandline.tableformat.storage import Put
from strandline.tableformat.stores.background import Background
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.storage import Storage

META: Final = "_catalog/"
NAMESPACES: Final = META + "namespaces/"
_OBJECT: Final = re.compile(r"([a-z0-9_~-]{1,200})!([0-9]{20})\.json\.lz4")
_SEPARATOR: Final = "!"
_BEHIND: Final = "~"
_ATTEMPTS: Final = 8
_PAUSE_S: Final = 0.02
_PAGE: Final = 500
_READERS: Final = 8


class Record(Protocol):
    """What every record has."""

    @property
    def name(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def record_id(self) -> str: ...
    def to_bytes(self) -> bytes: ...


R = TypeVar("R", bound=Record)
T = TypeVar("T")


class NameChains(Generic[R]):
    """The chains of all names in one folder of a catalog."""

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime,
        folder: str,
        *,
        decode: Callable[[bytes, int, str], R],
        unused: Callable[[str], R],
    ) -> None:
        self.storage, self.runtime, self.folder = storage, runtime, folder
        self._decode, self._unused = decode, unused

    def path(self, name: str, number: int) -> str:
        """Where a record lies."""
        digits = f"{INT64_MAX - number:020d}"
        return f"{self.folder}{names.flat_name(name)}{_SEPARATOR}{digits}{MANIFEST_SUFFIX}"

    def head(self, name: str) -> R:
        """The newest record of a name; number 0 if it was never used."""
        number = self._newest_local(name) if self.storage.is_local else self._newest_listed(name)
        return self.read(name, number) if number else self._unused(name)

    def read(self, name: str, number: int) -> R:
        """One record; `ObjectMissing` if there is none of this number."""
        path = self.path(name, number)
        record = self._decode(self._patiently(lambda: self.storage.read(path)), number, path)
        if record.name != name:
            raise CorruptTable(f"{path} is the record of another name: {record.name[:120]!r}")
        return record

    def _newest_listed(self, name: str) -> int:
        begin = names.flat_name(name) + _SEPARATOR
        found = self._patiently(lambda: self.storage.list(self.folder, start_after=begin, limit=1))
        match = _OBJECT.fullmatch(found[0]) if found and found[0].startswith(begin) else None
        return INT64_MAX - int(match[2]) if match else 0

    def _newest_local(self, name: str) -> int:
        """Where a listing would read a whole folder, asking for single files is cheaper."""
        number = 0
        while self._exists(self.path(name, number + 1)):
            number += 1
        return number

    def _exists(self, path: str) -> bool:
        try:
            self.storage.size(path)
        except ObjectMissing:
            return False
        return True

    def put(self, record: R) -> bool:
        """Take the step; False if another has taken the one with this number.

        A lost reply is settled by reading: the record's own id tells whose it is.
        """
        path, data, unclear = self.path(record.name, record.number), record.to_bytes(), False
        for attempt in range(_ATTEMPTS):
            try:
                if self.storage.put_if_absent(path, data) is Put.CREATED:
                    return True
                unclear = True
                return self.read(record.name, record.number).record_id == record.record_id
            except (OutcomeUnclear, ObjectMissing):
                unclear = True
            except StoreBusy:
                pass
            except StorageFailed:
                if not unclear:
                    raise
            self._pause(attempt)
        raise CommitStateUnknown(f"{self.storage.url}/{path}", record.number, record.record_id)

    def newest(self, prefix: str, after: str | None) -> Iterator[R]:
        """The newest record of each name that begins with `prefix` and is greater than `after`.

        In the order of the names' bytes; records are fetched a page at a time.
        """
        streams = [self._plain(prefix, after), self._encoded(prefix, after)]
        waiting = [next(stream, None) for stream in streams]
        while any(record is not None for record in waiting):
            at = min(
                (i for i, record in enumerate(waiting) if record is not None),
                key=lambda i: waiting[i].name.encode(),  # type: ignore[union-attr]  # not None
            )
            record = waiting[at]
            assert record is not None
            yield record
            waiting[at] = next(streams[at], None)

    def _plain(self, prefix: str, after: str | None) -> Iterator[R]:
        if prefix and not names.is_plain(prefix):
            return
        # Of two names with the same beginning the longer one sorts later, and so does `!`.
        begin = prefix
        if after is not None and after > prefix:
            begin = after
        for flat, number in self._flat(begin, until=_BEHIND):
            if not flat.startswith(prefix):
                if flat > prefix:
                    return
                continue
            if after is None or flat > after:
                yield self.read(flat, number)

    def _encoded(self, prefix: str, after: str | None) -> Iterator[R]:
        """Names in base32hex sort as bytes; long ones are known by a hash and sorted here."""
        wanted, least = prefix.encode(), b"" if after is None else after.encode()
        numbers = list(self._flat(_BEHIND, until=None))
        short = {names.plain_or_decoded(flat): number for flat, number in numbers}
        short.pop(None, None)
        chosen = [
            (name, number)
            for name, number in short.items()
            if name is not None and name.encode().startswith(wanted) and name.encode() > least
        ]
        pool = Background(_READERS, "strandline-names")
        long_ones = [(flat, number) for flat, number in numbers if flat.startswith(names.LONG)]
        found = [
            record
            for record in pool.map(lambda item: self._read_long(*item), long_ones)
            if record.name.encode().startswith(wanted) and record.name.encode() > least
        ]
        by_name: dict[str, R | int] = dict(chosen)
        by_name.update({record.name: record for record in found})
        for name in sorted(by_name, key=str.encode):
            known = by_name[name]
            yield self.read(name, known) if isinstance(known, int) else known

    def _read_long(self, flat: str, number: int) -> R:
        digits = f"{INT64_MAX - number:020d}"
        path = f"{self.folder}{flat}{_SEPARATOR}{digits}{MANIFEST_SUFFIX}"
        record = self._decode(self._patiently(lambda: self.storage.read(path)), number, path)
        if names.flat_name(record.name) != flat:
            raise CorruptTable(f"{path} is the record of another name")
        return record

    def _flat(self, begin: str, until: str | None) -> Iterator[tuple[str, int]]:
        """Flat names with the number of their newest record, in the order of the listing."""
        after, last = begin, None
        while True:
            page = self._patiently(
                lambda after=after: self.storage.list(self.folder, start_after=after, limit=_PAGE)
            )
            for name in page:
                match = _OBJECT.fullmatch(name)
                if until is not None and name >= until:
                    return
                if match is not None and match[1] != last:
                    last = match[1]
                    yield last, INT64_MAX - int(match[2])
            if len(page) < _PAGE:
                return
            # Older records of the last name are skipped at once.
            after = page[-1] if last is None else max(page[-1], f"{last}{_SEPARATOR}{_BEHIND}")

    def _patiently(self, ask: Callable[..., T]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                return ask()
            except StoreBusy:
                self._pause(attempt)
        return ask()

    def _pause(self, attempt: int) -> None:
        self.runtime.sleep(_PAUSE_S * 2**attempt * (0.5 + self.runtime.fraction()))


def new_id(runtime: Runtime) -> dict[str, Any]:
    """A fresh id for a record."""
    return {"record_id": runtime.random_hex(16)}
