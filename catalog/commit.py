"""The commit: one exclusive create, settled by reading, repeated until it is certain.

Libraries below us retry, so "exists" may mean our own commit, and a lost reply may mean it landed.
Every such answer is settled by reading the object and comparing commit ids. Nothing is ever
deleted on the way: an orphan costs bytes, a deleted file of a commit that landed costs rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from strandline.catalog import documents
from strandline.catalog.chain import TRUST_MS, Snapshot
from strandline.tableformat import codec
from strandline.tableformat.actions import (
    AlreadyCommitted,
    Stamp,
    apply,
    writer_ids,
)
from strandline.tableformat.conflicts import MustRewrite
from strandline.tableformat.errors import (
    CommitConflict,
    CommitStateUnknown,
    CommitTimeout,
    InvalidInput,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
    TableExists,
)
from strandline.tableformat.manifest import check_writable
from strandline.tableformat.storage import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.catalog.chain import Chain
    from strandline.tableformat.actions import Action
    from strandline.tableformat.manifest import Manifest, Position
    from strandline.tableformat.storage import PendingWrite

COMMIT_TIMEOUT_S: Final = 120.0
UNCLEAR_TIMEOUT_S: Final = 30.0
JITTER_S: Final = 0.005
"""Flat and short: growing pauses only make the slowest writer slower (measured)."""
_LEAST_TRIES: Final = 4
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0


class Change(Protocol):
    """What a commit wants to do, and how to do it again when the head has moved too far."""

    @property
    def actions(self) -> Sequence[Action]: ...

    @property
    def pending(self) -> Sequence[PendingWrite]:
        """Files that must be durable before the commit may be seen."""

    def rewrite(self, head: Manifest) -> Change:
        """The same change with new files, after `MustRewrite`."""


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A change without data files of its own; nothing in it depends on the head."""

    actions: tuple[Action, ...]
    pending: tuple[PendingWrite, ...] = ()

    def rewrite(self, head: Manifest) -> MetadataChange:
        del head
        return self


@dataclass(frozen=True, slots=True)
class Committed:
    """How a commit ended: the head afterwards, and the earlier result if the batch was known."""

    snapshot: Snapshot
    earlier: Position | None = None


def commit(
    chain: Chain,
    base: Snapshot,
    change: Change,
    *,
    operation: str,
    properties: tuple[tuple[str, str], ...] = (),
    timeout_s: float = COMMIT_TIMEOUT_S,
) -> Committed:
    """Commit the change on top of the newest version, however many writers there are."""
    attempt = _Attempt(chain, operation, properties, timeout_s)
    head = base
    while True:
        # Waiting in a queue beats racing in vain; the create below decides in either case.
        with chain.lock():
            if chain.storage.is_local or chain.follows_root:
                head = chain.refresh(head)
            done, must_rewrite = None, False
            try:
                done, head = attempt.once(head, change)
            except MustRewrite:
                must_rewrite = True
        if done is not None:
            return done
        chain.check_same_table(base, head)
        attempt.check_time(head)
        if must_rewrite:
            attempt.pause()
            head = chain.refresh(head)
            change = change.rewrite(head.manifest)
        elif not chain.storage.is_local:
            chain.runtime.sleep(chain.runtime.fraction() * JITTER_S)


def create(chain: Chain, first: Manifest, commit_id: str) -> Snapshot:
    """Create version 1 of a table, unless another has done so."""
    attempt = _Attempt(chain, first.commit.operation, (), COMMIT_TIMEOUT_S, commit_id)
    data = codec.encode_document(first.to_json())
    created = Snapshot(first, codec.checksum(data), chain.storage.clock_ms())
    if attempt.create_version(1, data, ()) is not None or attempt.is_zombie(created, created):
        raise TableExists(
            f"there is a Strandline table at {chain.storage.url} already; nothing was changed. "
            "Open it with strandline.open_table, or choose another place."
        )
    return created


class _Attempt:
    """The tries at one commit: they share a commit id and a deadline."""

    def __init__(
        self,
        chain: Chain,
        operation: str,
        properties: tuple[tuple[str, str], ...],
        timeout_s: float,
        commit_id: str | None = None,
    ) -> None:
        self.chain = chain
        self.operation = operation
        self.properties = properties
        self.commit_id = commit_id or chain.runtime.random_hex(16)
        self.deadline = chain.runtime.monotonic() + timeout_s
        self.timeout_s = timeout_s
        self.pauses = 0
        self.tries = 0
        self.announced = False
        """Before the head of this try was looked at."""

    def once(self, head: Snapshot, change: Change) -> tuple[Committed | None, Snapshot]:
        """One try. Without a result, the second value is the newer head to try again on."""
        check_writable(head.manifest)
        stamp = Stamp(
            commit_id=self.commit_id,
            now_ms=self.chain.runtime.now_ms(),
            operation=self.operation,
            properties=self.properties,
        )
        writers = writer_ids(change.actions)
        cold = documents.cold_positions(self.chain.service, head.manifest, writers)
        try:
            applied = apply(head.manifest, head.xxh64, change.actions, stamp, cold)
        except (CommitConflict, InvalidInput):
            # Final only on the newest version: an older one may fail what has become right.
            newest = self.chain.refresh(head)
            if newest.manifest.version == head.manifest.version:
                raise
            return None, newest
        if isinstance(applied, AlreadyCommitted):
            return Committed(head, applied.position), head
        if not self.announced:
            self.announced = True
            if self.chain.announce(applied.version):
                return None, self.chain.refresh(head)
        data = self.chain.encode(applied)
        winner = self.create_version(applied.version, data, change.pending)
        if winner is not None:
            return None, self.chain.refresh(winner)
        created = Snapshot(applied, codec.checksum(data), self.chain.storage.clock_ms())
        if self.is_zombie(created, head):
            newest = self.chain.find_head()
            if not self.has_landed_before(created, newest):
                return None, newest
            # Not the head: whoever goes on from here has to look for that.
            return Committed(replace(created, confirmed_ms=0)), newest
        return Committed(created), created

    def has_landed_before(self, created: Snapshot, newest: Snapshot) -> bool:
        """Whether the version we created anew was ours the first time as well.

        So it is where the reply to an earlier try was lost, and the version was removed before we
        tried again: to apply the change once more would double it.
        """
        history = newest.manifest.history
        if any(record.commit_id == self.commit_id for record in history):
            return True
        version = created.manifest.version
        if history[-1].version > version:
            raise CommitStateUnknown(self.chain.storage.url, version, self.commit_id)
        return False

    def check_time(self, head: Snapshot) -> None:
        """Give up when time is over, but not at once: a process may have slept for an hour."""
        self.tries += 1
        if self.tries >= _LEAST_TRIES and self.chain.runtime.monotonic() > self.deadline:
            raise CommitTimeout(
                f"no commit to {self.chain.storage.url} within {self.timeout_s:g} s: other writers "
                f"or the store were in the way; the head is version {head.manifest.version}. "
                "Nothing was changed. Try again, or write fewer, larger batches."
            )

    def pause(self) -> None:
        """Wait longer each time for a store that is busy or cannot be reached."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self.pauses)
        self.pauses += 1
        self.chain.runtime.sleep(longest * (0.5 + self.chain.runtime.fraction() / 2))

    def create_version(
        self, version: int, data: bytes, pending: Sequence[PendingWrite]
    ) -> Snapshot | None:
        """Create the version. None: it is ours. Otherwise: who has it."""
        path = self.chain.manifest_path(version)
        clock = self.chain.runtime.monotonic
        unclear_until: float | None = None
        while True:
            try:
                if self.chain.storage.put_if_absent(path, data, after=pending) is Put.CREATED:
                    return None
                # From here on it may be ours: a library below us may have sent it twice.
                unclear_until = unclear_until or clock() + UNCLEAR_TIMEOUT_S
                return self._other_than_us(version)
            except (OutcomeUnclear, ObjectMissing):
                unclear_until = unclear_until or clock() + UNCLEAR_TIMEOUT_S
            except StoreBusy:
                if unclear_until is None and clock() > self.deadline:
                    raise
            except StorageFailed:
                if unclear_until is None:
                    raise
            if unclear_until is not None and clock() > unclear_until:
                raise CommitStateUnknown(self.chain.storage.url, version, self.commit_id)
            # The identical conditional create is safe to send again until the answer is definite.
            self.pause()

    def _other_than_us(self, version: int) -> Snapshot | None:
        winner = self.chain.load(version)
        return None if winner.manifest.commit.commit_id == self.commit_id else winner

    def is_zombie(self, created: Snapshot, head: Snapshot) -> bool:
        """Whether the version we created had existed before and was vacuumed meanwhile.

        Possible only if much time passed since we saw the head; the store's own clock tells.
        """
        elapsed = created.confirmed_ms - head.confirmed_ms
        if not self.chain.storage.is_local and 0 <= elapsed <= TRUST_MS:
            return False
        until = self.chain.runtime.monotonic() + UNCLEAR_TIMEOUT_S
        while True:
            try:
                return created.manifest.version < self.chain.largest_gc_marker()
            except StorageFailed:
                if self.chain.runtime.monotonic() > until:
                    raise CommitStateUnknown(
                        self.chain.storage.url, created.manifest.version, self.commit_id
                    ) from None
                self.pause()
