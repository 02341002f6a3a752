"""One user's chain in a table with `scope="user"`: segments of its own, all else from the table.

The table's root manifest holds schema, configuration, retention floor and fence for all users. A
user's manifest leaves these out, and they are joined in when it is read: everything above sees a
manifest like any other. Users commit independently; nobody waits for anybody else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

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
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import Storage

SHARED: Final = (
    *("schema", "next_column_id", "config", "floor_ts", "files_floor", "fence", "dropped_at"),
    *("reader_features", "writer_features"),
)
"""What the table says for all of its users."""
KIND: Final = "user"
_NOTHING_KEPT: Final = PageCache(0)
"""Users are many: what belongs to one is not kept in memory, only in the local cache."""
_ATTEMPTS: Final = 6
_LISTERS: Final = 8


class UserChain(Chain):
    """The versions of one user. Version 0, which is never stored, is a user without rows."""

    def __init__(self, root: Chain, root_head: Snapshot, user: str) -> None:
        super().__init__(root.storage, root.runtime)
        self.service = ManifestService(root.storage, root.service.cache, _NOTHING_KEPT)
        self.base = paths.user_folder(user)
        self.user = user
        self._root, self._root_head = root, root_head

    follows_root = True

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def refresh(self, known: Snapshot) -> Snapshot:
        """The newest version, with what the table's newest version says for all users."""
        self._root_head = self._root.refresh(self._root_head)
        return self._joined(super().refresh(known))

    def _joined(self, found: Snapshot) -> Snapshot:
        root = self._root_head.manifest
        if found.manifest.root_version == root.version:
            return found
        shared = {name: getattr(root, name) for name in SHARED}
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
        fields.int64("root_version", least=1)
        document = {**self._shared_json(), **fields.value}
        decoded = manifest.from_json(document, version, known.manifest if known else None)
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
        document = orjson.loads(made.to_json())
        own = {name: value for name, value in document.items() if name not in SHARED}
        own |= {"kind": KIND, "user": self.user, "root_version": str(made.files_version)}
        if made.version == 1:
            own["parent_xxh64"] = None
        return codec.encode_document(codec.to_text(own, f"manifest {made.version}"))

    def announce(self, version: int) -> None:
        """Before a user's first commit, say that there is one: listings find it by this."""
        if version != 1:
            return
        path, data = paths.user_card(self.user), orjson.dumps({"user": self.user})
        for attempt in range(_ATTEMPTS):
            try:
                self._patiently(lambda: self.storage.put_if_absent(path, data))
            except OutcomeUnclear:
                self.runtime.sleep(0.02 * 2**attempt)
            else:
                return
        self.storage.put_if_absent(path, data)


def list_users(storage: Storage, prefix: str, after: str | None) -> list[str]:
    """All users that begin with `prefix` and are greater than `after`, by their bytes."""

    def folder(number: int) -> list[str]:
        place = f"{paths.USER_CARDS}{number:02x}/"
        found = []
        for flat in storage.list(place):
            name = names.plain_or_decoded(flat)
            found.append(_read_card(storage, place + flat) if name is None else name)
        return found

    every = Background(_LISTERS, "strandline-users").map(folder, range(256))
    wanted = [name for some in every for name in some if name.startswith(prefix)]
    least = b"" if after is None else after.encode()
    return sorted((name for name in wanted if name.encode() > least), key=str.encode)


def _read_card(storage: Storage, path: str) -> str:
    try:
        name = Fields(orjson.loads(storage.read(path)), path).text("user")
    except orjson.JSONDecodeError:
        name = ""
    if paths.user_card(name) != path:
        raise CorruptTable(f"{path} does not hold the name it stands for")
    return name
