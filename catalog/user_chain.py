"""One user's chain in a table with `scope="user"`: segments of its own, all else from the table.

The table's root manifest holds schema, configuration, retention floor and fence for all users. A
user's manifest leaves these out, and they are joined in when it is read: everything above sees a
manifest like any other. Users commit independently; nobody waits for anybody else.
"""

from __future__ import annotations

import re
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from strandline.catalog.chain import Chain, Snapshot
from strandline.catalog.manifest_service import ManifestService
from strandline.catalog.page_cache import PageCache
from strandline.tableformat import codec, manifest, names, paths
from strandline.tableformat.errors import CorruptTable, OutcomeUnclear, TableNotFound
from strandline.tableformat.fields import Fields
from strandline.tableformat.lifecycle import Lifecycle
from strandline.tableformat.manifest import CommitRecord
from strandline.tableformat.stores.background import Background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import Storage

SHARED: Final = (
    *("schema", "next_column_id", "config", "floor_ts", "fence", "dropped_at"),
    *("reader_features", "writer_features"),
)
"""What the table says for all of its users."""
KIND: Final = "user"
_NOTHING_KEPT: Final = PageCache(0)
"""Users are many: what belongs to one is not kept in memory, only in the local cache."""
_ATTEMPTS: Final = 6
_LISTERS: Final = 8
FOLDERS: Final = 256
_BATCH: Final = 64
_CARD: Final = re.compile(rf"{paths.USER_CARDS}[0-9a-f]{{2}}/(?!\.tmp-)[^/]+")
T = TypeVar("T")


class UserChain(Chain):
    """The versions of one user. Version 0, which is never stored, is a user without rows."""

    def __init__(self, root: Chain, root_head: Snapshot, user: str) -> None:
        super().__init__(root.storage, root.runtime)
        self.service = ManifestService(root.storage, root.service.cache, _NOTHING_KEPT)
        self.base = paths.user_folder(user)
        self.user: str = user
        self._root, self._root_head = root, root_head
        self._turn = threading.Lock()

    follows_root = True

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def refresh(self, known: Snapshot) -> Snapshot:
        """The newest version, with what the table's newest version says for all users."""
        root = self._root.refresh(self._root_head)
        with self._turn:
            # Another thread may have seen more of it meanwhile, and commits by that.
            if root.manifest.version >= self._root_head.manifest.version:
                self._root_head = root
        return self._joined(super().refresh(known))

    def _joined(self, found: Snapshot) -> Snapshot:
        root = self._root_head.manifest
        if found.manifest.root_version == root.version:
            return found
        shared: dict[str, Any] = {name: getattr(root, name) for name in SHARED}
        if not found.manifest.version:
            shared["files_floor"] = root.files_floor
        return replace(found, manifest=replace(found.manifest, **shared, root_version=root.version))

    def _find_head(self) -> Snapshot:
        try:
            return super()._find_head()
        except TableNotFound:
            return self._empty()

    def _empty(self) -> Snapshot:
        root = self._root_head.manifest
        nobody = replace(
            root,
            version=0,
            parent_xxh64=None,
            commit=CommitRecord(version=0, commit_id="0" * 32, committed_at=0, operation="none"),
            history=(),
            lifecycle=Lifecycle(),
            extra={"kind": KIND, "user": self.user},
            root_version=root.version,
        )
        return Snapshot(nobody, "", self.storage.clock_ms())

    def _decode(self, data: bytes, version: int, known: Snapshot | None = None) -> Snapshot:
        where = f"manifest {version} of a user of {self.storage.url}"
        fields = Fields(codec.decode_document(data, where), where)
        if fields.optional("kind") != KIND or fields.text("user") != self.user:
            raise CorruptTable(f"{where} is not of user {self.user[:120]!r}")
        if fields.identity("table_uuid") != self._root_head.manifest.table_uuid:
            raise CorruptTable(f"{where} is of another table")
        written_at = fields.int64("root_version", least=1)
        # Written before users had files floors of their own: no file of theirs was ever removed.
        document = {**self._shared_json(), "files_floor": "0", **fields.value}
        decoded = manifest.from_json(
            document, version, known.manifest if known else None, root_version=written_at
        )
        decoded = replace(decoded, root_version=self._root_head.manifest.version)
        return Snapshot(decoded, codec.checksum(data), self.storage.clock_ms())

    def _shared_json(self) -> dict[str, Any]:
        root = self._root_head.manifest
        found: dict[str, Any] | None = root.derived.get("shared_json")
        if found is None:
            document = orjson.loads(root.to_json())
            found = {name: document[name] for name in SHARED if name in document}
            root.derived["shared_json"] = found
        return found

    def encode(self, made: Manifest) -> bytes:
        """The user's own part of a manifest."""
        own = {name: value for name, value in made.document().items() if name not in SHARED}
        own |= {"kind": KIND, "user": self.user, "root_version": str(made.files_version)}
        if made.version == 1:
            own["parent_xxh64"] = None
        return codec.encode_document(codec.to_text(own, f"manifest {made.version}"))

    def announce(self, version: int) -> bool:
        """Before a user's first commit, say that there is one: listings find it by this.

        Vacuum raises the table's files floor before it lists users. Whoever looks at that floor
        after the user could be listed is either listed, or sees the floor.
        """
        if version != 1:
            return False
        path, data = paths.user_card(self.user), orjson.dumps({"user": self.user})
        for attempt in range(_ATTEMPTS):
            try:
                self._patiently(lambda: self.storage.put_if_absent(path, data))
            except OutcomeUnclear:
                self.runtime.sleep(0.02 * 2**attempt)
            else:
                return True
        self.storage.put_if_absent(path, data)
        return True


def list_users(storage: Storage, prefix: str, after: str | None) -> list[str]:
    """All users that begin with `prefix` and are greater than `after`, by their bytes."""
    every = batches_of_names(storage)
    wanted = [name for some in every for name in some if name.startswith(prefix)]
    least = b"" if after is None else after.encode()
    return sorted((name for name in wanted if name.encode() > least), key=str.encode)


def each_user(root: Chain, head: Snapshot, call: Callable[[str, UserChain], T]) -> Iterator[T]:
    """The results for all users, several at a time and in no order.

    Some names are in memory at a time, and the chains that are being looked at.
    """
    pool = Background(_LISTERS, "strandline-users")

    def one(name: str) -> T:
        return call(name, UserChain(root, head, name))

    for names_here in batches_of_names(root.storage):
        yield from pool.map(one, names_here)


def batches_of_names(storage: Storage) -> Iterator[list[str]]:
    """All users in no order, so that only some names are in memory at a time.

    One walk: an object store answers for a thousand users at once, in whichever folders they are.
    """
    pool = Background(_LISTERS, "strandline-users")
    cards = (path for path, _ in storage.walk(paths.USER_CARDS) if _CARD.fullmatch(path))
    while batch := list(islice(cards, _BATCH)):
        yield pool.map(lambda path: _name_on(storage, path), batch)


def users_in(storage: Storage, number: int) -> list[str]:
    """The users whose names stand in one of the folders."""
    place = f"{paths.USER_CARDS}{number:02x}/"
    return [_name_on(storage, place + flat) for flat in storage.list(place)]


def _name_on(storage: Storage, path: str) -> str:
    name = names.plain_or_decoded(path.rpartition("/")[2])
    return _read_card(storage, path) if name is None else name


def _read_card(storage: Storage, path: str) -> str:
    try:
        name = Fields(orjson.loads(storage.read(path)), path).text("user")
    except orjson.JSONDecodeError:
        name = ""
    if paths.user_card(name) != path:
        raise CorruptTable(f"{path} does not hold the name it stands for")
    return name
