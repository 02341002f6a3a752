"""Changes to a table as small typed values, and the pure function that applies them.

A commit is a list of actions. After a lost race the same actions are applied to the newer
manifest, so an action says what it wants ("these files, behind the tail") and never what the
result is ("version 12, sequence 4000"). `apply` either gives the next manifest, or the result the
same batch was given earlier, or an error after which nothing has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.tableformat import moves, paths, replacing
from strandline.tableformat import schema as schemas
from strandline.tableformat.config import MAX_STATS_COLUMNS
from strandline.tableformat.conflicts import MustRewrite
from strandline.tableformat.errors import (
    CommitConflict,
    Fenced,
    InvalidInput,
    SeqMismatch,
    TableDropped,
    WriterFenced,
    WriterPositionConflict,
    WriterPositionLost,
)
from strandline.tableformat.manifest import (
    EXTERNAL,
    HISTORY_LENGTH,
    WAL,
    CommitRecord,
    DocumentRef,
    Manifest,
    Position,
)
from strandline.tableformat.replacing import PresentFence, RemoveAll, ReplaceSegments
from strandline.tableformat.retention import (
    GiveUpVersions,
    RaiseFilesFloor,
    Retention,
    apply_retention,
    check_page,
    without_hidden,
)
from strandline.tableformat.segments import OFFSET, TOMBSTONES, PageRef, SegmentEntry, WindowEntry
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.tableformat.windows import Window

MAX_FENCE_BYTES: Final = 128
MAX_WRITER_ID_BYTES: Final = 256
MAX_PREVIOUS: Final = 4
"""Replaced incarnations that a position remembers: their logs may still wait to be replayed."""


@dataclass(frozen=True, slots=True)
class ExternalKey:
    """A batch number that the caller counts; a number that is not new was committed before."""

    writer_id: str
    number: int


@dataclass(frozen=True, slots=True)
class WalKey:
    """A run of write-ahead-log records, which must follow the stored position without a gap."""

    writer_id: str
    incarnation: str
    first_record: int
    last_record: int


BatchKey = ExternalKey | WalKey


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSegments:
    """Rows behind the tail."""

    segments: tuple[SegmentEntry, ...]
    """With sequence numbers counted from the batch's own beginning."""
    rows: int
    last_ts: int
    key: BatchKey | None = None
    fence: str | None = None
    match_seq: int | None = None
    clamped_to: int | None = None
    """The tail timestamp the rows were clamped to; None where the order is that of event time."""


@dataclass(frozen=True, slots=True)
class ClaimWriter:
    """From now on only this incarnation's log writes as `writer_id`; the one before is fenced."""

    writer_id: str
    incarnation: str
    committed: int = 0
    """The newest record of this log that is in the table, under whatever id it came there."""
    fence: str | None = None
    """As for an append: who may not write must not push out one who may."""


@dataclass(frozen=True, slots=True)
class EvolveSchema:
    """A change of columns, worked out against the head's own schema."""

    change: schemas.Evolution


@dataclass(frozen=True, slots=True)
class SetFence:
    """From now on only writers with this token append; None opens the table again."""

    token: str | None


@dataclass(frozen=True, slots=True)
class SetDropped:
    """The table is dropped, or brought back; nothing else may happen to a dropped one."""

    dropped: bool


@dataclass(frozen=True, slots=True)
class RollSegments:
    """Inline segments of one window move into a page."""

    window: Window
    moved: tuple[str, ...]
    page: PageRef


@dataclass(frozen=True, slots=True)
class MergePages:
    """Small pages of one window become one."""

    window: Window
    merged: tuple[str, ...]
    page: PageRef


@dataclass(frozen=True, slots=True)
class FoldWindows:
    """Cold windows move into a window page, which may take the place of smaller ones."""

    folded: tuple[WindowEntry, ...]
    merged: tuple[str, ...]
    page: PageRef


@dataclass(frozen=True, slots=True)
class FoldPositions:
    """Cold writer positions move into a page behind the others, or all pages become one.

    A later page wins over an earlier one, and the manifest wins over all pages.
    """

    folded: Mapping[str, Position]
    merged: tuple[str, ...]
    page: DocumentRef | None
    """None when a merge left nothing: every position in the pages was idle for too long."""


Action = (
    AddSegments
    | ClaimWriter
    | EvolveSchema
    | SetFence
    | SetDropped
    | PresentFence
    | ReplaceSegments
    | RemoveAll
    | RollSegments
    | MergePages
    | FoldWindows
    | FoldPositions
    | Retention
)


def writer_ids(actions: Sequence[Action]) -> set[str]:
    """The writers whose positions decide about these actions."""
    appends = {a.key.writer_id for a in actions if isinstance(a, AddSegments) and a.key}
    return appends | {a.writer_id for a in actions if isinstance(a, ClaimWriter)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Who commits, when, and as what. The id tells our own commit from another's."""

    commit_id: str
    now_ms: int
    operation: str
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The batch is in the table: the result it was given then."""

    position: Position


def apply(
    head: Manifest,
    head_xxh64: str,
    actions: Sequence[Action],
    stamp: Stamp,
    cold_positions: Mapping[str, Position],
) -> Manifest | AlreadyCommitted:
    """The manifest after `head`. `cold_positions` holds what position pages say of our writers.

    The checks of an append stand in a fixed order (SPEC.md, committing): a known batch answers
    before any condition can fail it, because its first attempt may be what changed the condition.
    """
    for action in actions:
        if isinstance(action, AddSegments) and action.key is not None:
            known = settle_key(action.key, head.positions, cold_positions)
            if known is not None:
                return AlreadyCommitted(known)
    if head.dropped_at is not None and not all(map(may_follow_drop, actions)):
        raise TableDropped(head.dropped_at)
    version = head.version + 1
    committed_at = max(stamp.now_ms, head.commit.committed_at + 1)
    draft = replace(head, version=version, parent_xxh64=head_xxh64, removed_files=())
    for action in actions:
        draft = _apply_one(draft, action, committed_at, cold_positions)
    if draft.root_version is not None and draft.floor_ts:
        # The table's floor rose without a commit of this user.
        draft = without_hidden(draft)
    record = CommitRecord(
        version=version,
        commit_id=stamp.commit_id,
        committed_at=committed_at,
        operation=stamp.operation,
        rows=draft.next_seq - head.next_seq,
        first_seq=head.next_seq if draft.next_seq > head.next_seq else None,
        properties=stamp.properties,
    )
    return replace(draft, commit=record, history=(record, *head.history[: HISTORY_LENGTH - 1]))


def may_follow_drop(action: Action) -> bool:
    """Whether a dropped table takes this change: coming back, or being removed."""
    return isinstance(action, SetDropped | GiveUpVersions | RaiseFilesFloor)


def _apply_one(
    draft: Manifest, action: Action, committed_at: int, cold: Mapping[str, Position]
) -> Manifest:
    if isinstance(action, AddSegments):
        return _add_segments(draft, action, committed_at, cold)
    if isinstance(action, ClaimWriter):
        return _claim(draft, action, committed_at, cold)
    if isinstance(action, EvolveSchema):
        return _evolve(draft, action)
    if isinstance(action, SetFence):
        return replace(draft, fence=action.token)
    if isinstance(action, SetDropped):
        return replace(draft, dropped_at=committed_at if action.dropped else None)
    if isinstance(action, PresentFence):
        _check_fence(draft, action.token)
        return draft
    if isinstance(action, ReplaceSegments | RemoveAll):
        for page in replacing.new_pages(action):
            check_page(draft, page.path)
        return replacing.apply_replacing(draft, action, committed_at)
    if isinstance(action, Retention):
        return apply_retention(draft, action, committed_at)
    return _move(draft, action)


def _move(
    draft: Manifest, action: RollSegments | MergePages | FoldWindows | FoldPositions
) -> Manifest:
    if action.page is not None:
        check_page(draft, action.page.path)
    if isinstance(action, RollSegments):
        return moves.roll(draft, action)
    if isinstance(action, MergePages):
        return moves.merge(draft, action)
    if isinstance(action, FoldWindows):
        return moves.fold_windows(draft, action)
    return moves.fold_positions(draft, action)


# --- appends -----------------------------------------------------------------------------------


def settle_key(
    key: BatchKey, hot: Mapping[str, Position], cold: Mapping[str, Position]
) -> Position | None:
    """The position that covers this batch already; None if the batch is the next one."""
    stored = hot.get(key.writer_id) or cold.get(key.writer_id)
    if isinstance(key, ExternalKey):
        if stored is not None and stored.kind != EXTERNAL:
            raise CommitConflict(
                f"writer id {key.writer_id!r} belongs to a write-ahead-log writer. Nothing was "
                "changed. Use another writer_id for numbered batches."
            )
        return stored if stored is not None and key.number <= stored.number else None
    if stored is None:
        if key.first_record != 1:
            raise WriterPositionLost(key.writer_id, key.first_record)
        return None
    _check_is_wal(key.writer_id, stored)
    if stored.incarnation != key.incarnation:
        # Also for a first record: a process that stalled before it would push out its successor.
        raise WriterFenced(key.writer_id)
    if key.last_record <= stored.number:
        return stored
    if key.first_record != stored.number + 1:
        raise WriterPositionConflict(
            key.writer_id, stored.number, key.first_record, key.last_record
        )
    return None


def _check_is_wal(writer_id: str, stored: Position) -> None:
    if stored.kind != WAL:
        raise CommitConflict(
            f"writer id {writer_id!r} belongs to a writer that numbers its batches. Nothing "
            "was changed. Use another writer_id for the write-ahead log."
        )


def _add_segments(
    draft: Manifest, action: AddSegments, committed_at: int, cold: Mapping[str, Position]
) -> Manifest:
    _check_conditions(draft, action)
    first_seq = draft.next_seq
    positions = draft.positions
    if action.key is not None:
        known = positions.get(action.key.writer_id) or cold.get(action.key.writer_id)
        position = _position(action.key, draft.version, first_seq, action.rows, committed_at)
        if known is not None:
            position = replace(position, previous=known.previous)
        positions = {**positions, action.key.writer_id: position}
    return replace(
        draft,
        next_seq=first_seq + action.rows,
        # A batch may have lost all its rows to the floor; its key is committed all the same.
        last_ts=action.last_ts if action.rows else draft.last_ts,
        shard_marks=_raised_marks(draft.shard_marks, action.segments),
        positions=positions,
        segments=draft.segments
        + tuple(_placed(entry, first_seq, committed_at) for entry in action.segments),
        reader_features=_features(draft, action.segments),
    )


def _features(draft: Manifest, added: Sequence[SegmentEntry]) -> tuple[str, ...]:
    """What readers must know from now on; once there were tombstones, older versions list them."""
    known = draft.reader_features
    needed = TOMBSTONES not in known and any(entry.tombstones for entry in added)
    return (*known, TOMBSTONES) if needed else known


def _check_fence(draft: Manifest, token: str | None) -> None:
    if draft.fence is not None and token != draft.fence:
        raise Fenced
    if draft.fence is None and token is not None:
        raise CommitConflict(
            "a fencing token was given, but the table carries none. Nothing was changed. Set it "
            "with fence(token) first."
        )


def _check_conditions(draft: Manifest, action: AddSegments) -> None:
    _check_fence(draft, action.fence)
    if action.match_seq is not None and action.match_seq != draft.next_seq:
        raise SeqMismatch(action.match_seq, draft.next_seq)
    if action.clamped_to is not None and action.clamped_to < draft.last_ts:
        raise MustRewrite("the head's newest timestamp has moved past the one rows were raised to")
    if draft.next_seq + action.rows > INT64_MAX - 1:
        raise InvalidInput("the table has used up its sequence numbers")
    if any(entry.min_ts < draft.floor_ts for entry in action.segments):
        raise MustRewrite("the retention floor has risen above rows of this append")
    for entry in action.segments:
        if paths.parse_segment_path(entry.path).base_version < draft.files_floor:
            raise MustRewrite("vacuum may have removed the files of this append")


def _placed(entry: SegmentEntry, first_seq: int, committed_at: int) -> SegmentEntry:
    placed = replace(
        entry,
        min_seq=entry.min_seq + first_seq,
        max_seq=entry.max_seq + first_seq,
        # Of a batch that several processes wrote, each part counts from its own beginning.
        seq_base=first_seq + entry.seq_base if entry.rows_are == OFFSET else 0,
        created_at=committed_at,
    )
    return replace(placed, encoded=placed.to_json())


def _raised_marks(marks: dict[int, int], added: Sequence[SegmentEntry]) -> dict[int, int]:
    raised = dict(marks)
    for entry in added:
        if entry.tombstones:
            continue  # A delete is stamped now; rows with event times before it are not late.
        raised[entry.shard] = max(raised.get(entry.shard, 0), entry.max_ts)
    return raised


def _position(key: BatchKey, version: int, first_seq: int, rows: int, at: int) -> Position:
    is_wal = isinstance(key, WalKey)
    return Position(
        kind=WAL if is_wal else EXTERNAL,
        number=key.last_record if isinstance(key, WalKey) else key.number,
        incarnation=key.incarnation if isinstance(key, WalKey) else None,
        version=version,
        first_seq=first_seq,
        rows=rows,
        committed_at=at,
    )


def _claim(
    draft: Manifest, action: ClaimWriter, committed_at: int, cold: Mapping[str, Position]
) -> Manifest:
    """The position of a log that begins to write, or that of the same log as it is.

    The logs it replaces are remembered with their last committed record: who finds one on a disk
    later can tell which of its records are in the table.
    """
    _check_fence(draft, action.fence)
    stored = draft.positions.get(action.writer_id) or cold.get(action.writer_id)
    if stored is not None:
        _check_is_wal(action.writer_id, stored)
    if stored is None or stored.incarnation != action.incarnation:
        replaced = () if stored is None else _replaced(stored, action.incarnation)
        stored = replace(
            _position(
                WalKey(action.writer_id, action.incarnation, 1, action.committed),
                draft.version,
                draft.next_seq,
                rows=0,
                at=committed_at,
            ),
            previous=replaced,
        )
    return replace(draft, positions={**draft.positions, action.writer_id: stored})


def _replaced(stored: Position, incarnation: str) -> tuple[tuple[str, int], ...]:
    newest = (stored.incarnation or "", stored.number)
    return (newest, *(p for p in stored.previous if p[0] != incarnation))[:MAX_PREVIOUS]


def _evolve(draft: Manifest, action: EvolveSchema) -> Manifest:
    evolved = schemas.evolve(
        draft.schema,
        action.change,
        next_column_id=draft.next_column_id,
        protected_ids=draft.config.protected_ids,
    )
    kept = tuple(i for i in draft.config.stats_columns if i in evolved.by_id)
    return replace(
        draft,
        schema=evolved,
        next_column_id=max(draft.next_column_id, max(evolved.by_id) + 1),
        config=replace(draft.config, stats_columns=_with_new_columns(kept, draft, evolved)),
    )


def _with_new_columns(
    kept: tuple[int, ...], draft: Manifest, evolved: schemas.Schema
) -> tuple[int, ...]:
    """New columns get stats while there is room, as they would have had from the beginning."""
    from_start = [
        c.id for c in evolved.columns if c.id >= draft.next_column_id and c.type.domain is not None
    ]
    return (kept + tuple(from_start))[: max(MAX_STATS_COLUMNS, len(kept))]
