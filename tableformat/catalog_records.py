"""What a catalog remembers of a namespace and of a name, and how each may change.

Every name has a chain of small records of its own; the newest one is the whole truth about it.
A change is a pure step from one record to the next. Creating the object with the next number
decides who takes the step, so that names never wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from strandline.tableformat import codec, names
from strandline.tableformat.errors import CorruptTable, InvalidInput, UnsupportedFormat
from strandline.tableformat.fields import Fields

FORMAT: Final = "strandline-catalog"
FORMAT_VERSION: Final = 1
LIVE, DROPPING, DROPPED = "live", "dropping", "dropped"
MAX_DROPPED: Final = 64
"""Tables of one name that are dropped and not purged: a record stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One table that a name stands for, or stood for."""

    folder: str
    """Below the catalog's root; never used again, also after a purge."""
    table_uuid: str
    created_at: int
    deleted_at: int | None = None
    purging: bool = False
    """Its files are being removed: there is no way back."""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "folder": self.folder,
            "table_uuid": self.table_uuid,
            "created_at": str(self.created_at),
        }
        if self.deleted_at is not None:
            out["deleted_at"] = str(self.deleted_at)
        if self.purging:
            out["purging"] = True
        return out


def _entry(value: Any, where: str) -> Entry:
    fields = Fields(value, where)
    folder = fields.text("folder")
    namespace, _, rest = folder.partition("/data/")
    if not (names.is_data_folder(namespace) and names.is_data_folder(rest)):
        raise CorruptTable(f"{where}: folder {folder[:120]!r} does not fit the grammar of SPEC.md")
    return Entry(
        folder=folder,
        table_uuid=fields.identity("table_uuid"),
        created_at=fields.int64("created_at"),
        deleted_at=None if fields.optional("deleted_at") is None else fields.int64("deleted_at"),
        purging=bool(fields.optional("purging")) and fields.flag("purging"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A rename under way: who holds the number `slot` of the other name's chain decides it."""

    id: str
    namespace: str
    """The namespace's folder, so that one that was dropped and made anew is another one."""
    name: str
    slot: int

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "namespace": self.namespace,
            "name": self.name,
            "slot": str(self.slot),
        }


def _move(value: Any) -> Move:
    fields = Fields(value, "name record.moving")
    if not names.is_data_folder(fields.text("namespace")):
        raise CorruptTable("name record.moving: the namespace's folder does not fit the grammar")
    return Move(
        id=fields.identity("id"),
        namespace=fields.text("namespace"),
        name=names.check_name(fields.text("name")),
        slot=fields.int64("slot", least=1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRecord:
    """Everything about one name of a namespace. Number 0 stands for a name never used."""

    name: str
    number: int = 0
    record_id: str = ""
    """Tells our own record from another's when a reply was lost."""
    live: Entry | None = None
    dropped: tuple[Entry, ...] = ()
    """Newest first."""
    moving: Move | None = None
    moved_by: str | None = None
    """The rename that gave this name its table with this very record."""

    def to_bytes(self) -> bytes:
        out: dict[str, Any] = {
            **_head("name", self.number, self.record_id),
            "name": self.name,
            "live": None if self.live is None else self.live.to_json(),
            "dropped": [entry.to_json() for entry in self.dropped],
        }
        if self.moving is not None:
            out["moving"] = self.moving.to_json()
        if self.moved_by is not None:
            out["moved_by"] = self.moved_by
        return codec.encode_document(orjson.dumps(out))

    def next(self, **changes: Any) -> NameRecord:
        """The record after this one; a rename that was settled leaves no trace in it."""
        return replace(
            self, **{"number": self.number + 1, "moving": None, "moved_by": None, **changes}
        )

    def next_id(self, record_id: str) -> NameRecord:
        """The same step under an id of its own."""
        return replace(self, record_id=record_id)

    def without_live(self, deleted_at: int) -> NameRecord:
        """The live table becomes a dropped one."""
        if self.live is None or len(self.dropped) >= MAX_DROPPED:
            raise InvalidInput(
                f"{MAX_DROPPED} tables named {self.name!r} are dropped and not purged. Nothing was "
                "changed. Purge them first."
            )
        gone = replace(self.live, deleted_at=deleted_at)
        return self.next(live=None, dropped=(gone, *self.dropped))

    def with_back(self, entry: Entry) -> NameRecord:
        """A dropped table becomes the live one."""
        rest = tuple(e for e in self.dropped if e.folder != entry.folder)
        return self.next(live=replace(entry, deleted_at=None), dropped=rest)

    def with_dropped(self, folder: str, entry: Entry | None) -> NameRecord:
        """Another entry, or none, for a dropped table."""
        changed = tuple(entry if e.folder == folder else e for e in self.dropped)
        return self.next(live=self.live, dropped=tuple(e for e in changed if e is not None))


def name_record(data: bytes, number: int, where: str) -> NameRecord:
    """Decode and check a record of a name."""
    fields = _document(data, "name", number, where)
    live, moving = fields.optional("live"), fields.optional("moving")
    moved_by = fields.optional("moved_by")
    return NameRecord(
        name=_name(fields, where),
        number=number,
        record_id=fields.identity("record_id"),
        live=None if live is None else _entry(live, "name record.live"),
        dropped=tuple(_entry(e, "name record.dropped") for e in fields.list("dropped")),
        moving=None if moving is None else _move(moving),
        moved_by=None if moved_by is None else fields.identity("moved_by"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRecord:
    """Everything about one namespace."""

    name: str
    number: int = 0
    record_id: str = ""
    state: str = DROPPED
    folder: str = ""
    created_at: int = 0
    deleted_at: int | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    """What its tables are created with, where the caller does not say otherwise."""

    def to_bytes(self) -> bytes:
        out: dict[str, Any] = {
            **_head("namespace", self.number, self.record_id),
            "name": self.name,
            "state": self.state,
            "folder": self.folder,
            "created_at": str(self.created_at),
            "defaults": self.defaults,
        }
        if self.deleted_at is not None:
            out["deleted_at"] = str(self.deleted_at)
        return codec.encode_document(orjson.dumps(out))

    @property
    def exists(self) -> bool:
        """Whether its tables are reached; also while somebody tries to drop it."""
        return self.state != DROPPED

    def next(self, **changes: Any) -> NamespaceRecord:
        """The record after this one."""
        return replace(self, number=self.number + 1, **changes)

    def alive(self, record_id: str) -> NamespaceRecord:
        """The record that ends a drop, or brings the namespace back."""
        return self.next(record_id=record_id, state=LIVE, deleted_at=None)


def namespace_record(data: bytes, number: int, where: str) -> NamespaceRecord:
    """Decode and check a record of a namespace."""
    fields = _document(data, "namespace", number, where)
    folder = fields.text("folder")
    if not names.is_data_folder(folder):
        raise CorruptTable(f"{where}: folder {folder[:120]!r} does not fit the grammar of SPEC.md")
    return NamespaceRecord(
        name=_name(fields, where),
        number=number,
        record_id=fields.identity("record_id"),
        state=fields.choice("state", (LIVE, DROPPING, DROPPED)),
        folder=folder,
        created_at=fields.int64("created_at"),
        deleted_at=None if fields.optional("deleted_at") is None else fields.int64("deleted_at"),
        defaults=fields.object("defaults"),
    )


def _head(kind: str, number: int, record_id: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "number": str(number),
        "record_id": record_id,
    }


def _document(data: bytes, kind: str, number: int, where: str) -> Fields:
    fields = Fields(codec.decode_document(data, where), where)
    if fields.optional("format") != FORMAT or fields.optional("kind") != kind:
        raise CorruptTable(f"{where} is not a catalog's record of a {kind}")
    version = fields.int32("format_version")
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"the catalog has format version {version}, and this library reads version "
            f"{FORMAT_VERSION}. Install a newer strandline."
        )
    if fields.int64("number", least=1) != number:
        raise CorruptTable(f"{where} says it has another number")
    return fields


def _name(fields: Fields, where: str) -> str:
    try:
        return names.check_name(fields.text("name"))
    except InvalidInput as error:
        raise CorruptTable(f"{where}: {error}") from None
