"""Remembered queries of a table: a chain of small documents for each alias, and frames of states.

A document names the query, the frames, and the high-water mark: the table's next sequence number,
and everything that says whether rows below it are still the same. Frames and mark move together,
in one exclusive create. So whoever refreshes at the same time, one of them wins, and the other
finds that there is less left to do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.queries import aggregating, answers
from strandline.queries.documents import (
    Document,
    FrameRef,
    columns_used,
    decode,
    frame_version,
    mark_of,
)
from strandline.readers.request import Request
from strandline.tableformat import codec, paths
from strandline.tableformat.arrow_messages import pack_batch, unpack_batch
from strandline.tableformat.errors import (
    CommitConflict,
    CommitStateUnknown,
    CorruptTable,
    InvalidInput,
    ObjectMissing,
    OutcomeUnclear,
    StoreBusy,
    VersionNotFound,
)
from strandline.tableformat.remembered_query import check_columns, query_from
from strandline.tableformat.safe_names import check_name, decode_name, encode_name
from strandline.tableformat.storage import Put
from strandline.tableformat.stream_frames import ARROW_ROWS, encode_frame, read_frames

if TYPE_CHECKING:
    from strandline.table import Table
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.remembered_query import RememberedQuery
    from strandline.tableformat.schema import Schema

FOLDER: Final = paths.META + "materializations/"
KEEPS_ROWS: Final = frozenset(
    [
        *("append", "claim", "fence", "evolve", "tidy", "compact"),
        *("expire_versions", "vacuum", "set", "tag", "untag"),
    ]
)
"""Operations after which the rows below the mark are the same; any other means to begin anew."""
KEEP_VERSIONS: Final = 4
_ATTEMPTS: Final = 40
_PAUSE_S: Final = 0.02


class Remembered:
    """One alias of a table."""

    def __init__(self, table: Table, alias: object) -> None:
        self._table, self.alias = table, check_name(alias, "an alias")
        if table.config.scope != "shared":
            raise InvalidInput(
                "queries of a table with scope='user' cannot be remembered: its users have no "
                "sequence in common. Nothing was changed."
            )
        chain = table._chain  # noqa: SLF001 - a part of the table in a file of its own
        self._storage, self._runtime = chain.storage, chain.runtime
        self._folder = f"{FOLDER}{encode_name(self.alias)}/"

    # --- the chain ---

    def head(self) -> Document | None:
        """The newest document; None if the alias was never remembered."""
        for _ in range(_ATTEMPTS):
            version = self._newest_version()
            if version is None:
                return None
            path = self._document_path(version)
            try:
                return decode(self._storage.read(path), path, version)
            except ObjectMissing:
                continue
        raise CorruptTable(f"{self._folder} lists a document that cannot be read")

    def _newest_version(self) -> int | None:
        after = ""
        while names := self._storage.list(self._folder, start_after=after, limit=8):
            for name in names:
                version = paths.manifest_version(name)
                if version is not None:
                    return version
            after = names[-1]
        return None

    def _document_path(self, version: int) -> str:
        return self._folder + paths.manifest_path(version).removeprefix(paths.MANIFESTS)

    def _known(self) -> Document:
        found = self.head()
        if found is None or found.query is None:
            raise InvalidInput(f"no query is remembered as {self.alias!r}; remember one first")
        return found

    def _create(self, document: Document, frame: tuple[str, bytes] | None) -> bool:
        """Commit the next document. False: another was quicker."""
        after = [] if frame is None else [self._storage.write_new(*frame)]
        path, data = self._document_path(document.version), document.encode()
        for attempt in range(_ATTEMPTS):
            try:
                if self._storage.put_if_absent(path, data, after=after) is Put.CREATED:
                    break
                stored = decode(self._storage.read(path), path, document.version)
                if stored.commit_id == document.commit_id:
                    break
            except (OutcomeUnclear, StoreBusy):
                self._runtime.sleep(min(1.0, _PAUSE_S * 2**attempt))
            except ObjectMissing:
                return False
            else:
                return False
        else:
            raise CommitStateUnknown(self._storage.url, document.version, document.commit_id)
        # A version that was removed can be created again by who slept: it is not the newest then.
        newest = self.head()
        return newest is not None and newest.version >= document.version

    def _remove_older(self, document: Document) -> None:
        kept = {frame.path for frame in document.frames}
        for path, _ in list(self._storage.walk(self._folder)):
            name = path.removeprefix(self._folder)
            version = paths.manifest_version(name)
            begun = frame_version(name) if path not in kept else None
            made = version if version is not None else begun
            if made is not None and made < document.version - KEEP_VERSIONS:
                self._storage.delete([path])

    # --- what users do ---

    def remember(self, query: object) -> None:
        """Store the query, with the state of the table as it is now."""
        manifest = self._table.refresh().manifest
        asked = query_from(query, manifest.schema)
        self._table.scan(filter=asked.filter)  # what is wrong with the filter is said now
        known = self.head()
        if known is not None and known.query is not None:
            if known.query == asked:
                return
            raise CommitConflict(
                f"another query is remembered as {self.alias!r}; nothing was changed. Forget it "
                "first, or choose another alias."
            )
        version = 1 if known is None else known.version + 1
        empty = Document(version=version, commit_id=self._runtime.random_hex(16), query=asked)
        if not self._create(empty, None):
            self.remember(query)
            return
        self.refresh()

    def forget(self) -> None:
        """Let the query go; forgetting twice is an error."""
        for _ in range(_ATTEMPTS):
            known = self._known()
            gone = Document(
                version=known.version + 1, commit_id=self._runtime.random_hex(16), query=None
            )
            if self._create(gone, None):
                break
        else:
            raise self._too_busy()
        # A long alias may begin with all of this one's folder: its frames lie further down.
        made = [path for path, _ in list(self._storage.walk(self._folder)) if self._is_frame(path)]
        self._storage.delete(made)

    def _is_frame(self, path: str) -> bool:
        return frame_version(path.removeprefix(self._folder)) is not None

    def refresh(self) -> int:
        """Bring the kept state up to the table's newest version; gives its sequence number."""
        for _ in range(_ATTEMPTS):
            known = self._known()
            assert known.query is not None
            manifest = self._table.refresh().manifest
            holds = self._still_holds(known, manifest)
            if holds and known.mark is not None and known.mark.next_seq == manifest.next_seq:
                return manifest.next_seq
            state = self._state(known, manifest)
            if state is None:
                continue
            kept = self._retained(_kept_longer(known.query), state)
            next_version = known.version + 1
            frame_id = f"{next_version}-{self._runtime.random_hex(8)}"
            path = f"{self._folder}frames/{frame_id}.frame"
            data = _frame(_stored(known.query, manifest.schema, kept))
            document = Document(
                version=next_version,
                commit_id=self._runtime.random_hex(16),
                query=known.query,
                mark=mark_of(known.query, manifest),
                frames=(FrameRef(path, len(data), codec.checksum(data)),),
            )
            if self._create(document, (path, data)):
                self._remove_older(document)
                return manifest.next_seq
        raise self._too_busy()

    def _too_busy(self) -> CommitConflict:
        return CommitConflict(
            f"others kept changing what is remembered as {self.alias!r}. Nothing was changed. Try "
            "again."
        )

    def show(self) -> pa.Table:
        """The answer at the table's newest version: what is kept, and what was appended since."""
        for _ in range(_ATTEMPTS):
            known = self._known()
            assert known.query is not None
            manifest = self._table._latest().manifest  # noqa: SLF001
            state = self._state(known, manifest)
            if state is not None:
                return self._answer(known.query, manifest.schema, state)
        raise self._too_busy()

    # --- states ---

    def _still_holds(self, known: Document, manifest: Manifest) -> bool:
        """Whether rows below the mark are what they were; in doubt they are not."""
        mark = known.mark
        assert known.query is not None
        _check_schema(known, manifest.schema)
        if manifest.reader_features:
            return False  # such as keys: a later row may take an earlier one's place
        head = self._table._head.manifest  # noqa: SLF001
        if mark is None or mark.version > manifest.version or mark.next_seq > manifest.next_seq:
            return False
        now = (max(manifest.floor_ts, head.floor_ts), max(manifest.trim_seq, head.trim_seq))
        if now != (mark.floor_ts, mark.trim_seq) or manifest.deleted_rows != mark.deleted_rows:
            return False
        if mark.columns != columns_used(known.query, manifest.schema):
            return False
        try:
            records = self._table.history(head.version - mark.version)
        except (VersionNotFound, ObjectMissing):
            return False
        later = [r for r in records if mark.version < r.version <= manifest.version]
        return len(later) == manifest.version - mark.version and all(
            record.operation in KEEPS_ROWS for record in later
        )

    def _state(self, known: Document, manifest: Manifest) -> Any:
        """The state at a version of the table; None: frames went meanwhile, look again."""
        query = known.query
        assert query is not None
        holds = self._still_holds(known, manifest)
        start = known.mark.next_seq if holds and known.mark is not None else 0
        schema = manifest.schema
        columns = list(dict.fromkeys([*query.reads, "_seq", "_ts"]))
        request = Request(columns=columns, filter=query.filter, start_seq=start)
        scan = self._table._scan(manifest, request)  # noqa: SLF001
        kept: list[pa.Table] = []
        if holds:
            try:
                kept = [self._read_frame(query, schema, frame) for frame in known.frames]
            except ObjectMissing:
                newest = self.head()
                if newest is None or newest.version != known.version:
                    return None
                # Lost, and not replaced: everything in it is in the table, too.
                return self._state(replace(known, mark=None, frames=()), manifest)
        if not query.aggregates:
            plain = _row_schema(query, schema)
            new = [pa.Table.from_batches([batch]).cast(plain) for batch in scan.to_batches()]
            return pa.concat_tables([plain.empty_table(), *kept, *new])
        collected = aggregating.Collected(query, schema)
        for table in kept:
            try:
                collected.add(answers.from_table(query, table))
            except (TypeError, ValueError) as error:
                raise CorruptTable(f"a frame of {self.alias!r} holds no state: {error}") from None
        for batch in scan.to_batches():
            rows = pa.Table.from_batches([batch])
            collected.add(aggregating.group_rows(query, schema, rows))
        return collected.result()

    def _read_frame(self, query: RememberedQuery, schema: Schema, frame: FrameRef) -> pa.Table:
        path = frame.path
        if not self._is_frame(path):
            raise CorruptTable(f"frame {path[:200]!r} does not belong to {self.alias!r}")
        data = self._storage.read(path)
        if len(data) != frame.size_bytes or codec.checksum(data) != frame.xxh64:
            raise CorruptTable(f"{path} does not fit its size and checksum")
        found = list(read_frames(data, path, may_be_torn=False))
        if len(found) != 1:
            raise CorruptTable(f"{path} holds {len(found)} frames instead of one")
        expected = (
            answers.state_schema(query, schema) if query.aggregates else _row_schema(query, schema)
        )
        return pa.Table.from_batches([unpack_batch(found[0].payload, expected, path)])

    def _retained(self, query: RememberedQuery, state: Any) -> Any:
        """What is younger than the age, and of that the newest rows or buckets."""
        if query.max_rows is None and query.max_age_ms is None:
            return state
        oldest = -1 if query.max_age_ms is None else self._runtime.now_ms() - query.max_age_ms
        if query.aggregates:
            assert query.bucket_ms is not None
            starts = state.keys[-1].to_numpy()
            young = starts + query.bucket_ms > oldest
            if query.max_rows is not None:
                young &= np.isin(starts, np.unique(starts[young])[-query.max_rows :])
            return state.take(np.flatnonzero(young))
        rows = state.filter(pa.array(state.column("_ts").to_numpy() >= oldest))
        if query.max_rows is not None:
            rows = rows.slice(max(0, rows.num_rows - query.max_rows))
        return rows

    def _answer(self, query: RememberedQuery, schema: Schema, state: Any) -> pa.Table:
        kept = self._retained(query, state)
        if query.aggregates:
            return answers.answer(query, schema, kept)
        return kept.select(list(query.columns))


def aliases(table: Table) -> list[str]:
    """Everything that is remembered, in order."""
    storage = table._chain.storage  # noqa: SLF001
    folders = {
        path.removeprefix(FOLDER).rpartition("/")[0]
        for path, _ in storage.walk(FOLDER)
        if path.endswith(paths.MANIFEST_SUFFIX)
    }
    names = sorted(decode_name(folder) for folder in folders)
    heads = ((name, Remembered(table, name).head()) for name in names)
    return [name for name, head in heads if head is not None and head.query is not None]


def _check_schema(known: Document, schema: Schema) -> None:
    assert known.query is not None
    try:
        check_columns(known.query, schema)
        columns_used(known.query, schema)
    except InvalidInput as error:
        raise InvalidInput(
            f"the table's columns have changed, and the remembered query no longer fits them: "
            f"{error}. Forget it, and remember it with the columns as they are now."
        ) from None


def _kept_longer(query: RememberedQuery) -> RememberedQuery:
    """The query by which rows are stored.

    Cut by number as well as by age, the newest rows by number could be gone by age before older
    ones that were not stored. Buckets leave in one order for both.
    """
    by_both = query.max_rows is not None and query.max_age_ms is not None
    return replace(query, max_rows=None) if by_both and not query.aggregates else query


def _row_schema(query: RememberedQuery, schema: Schema) -> pa.Schema:
    names = list(dict.fromkeys([*query.reads, "_seq", "_ts"]))
    hidden = [pa.field(name, pa.int64(), nullable=False) for name in ("_seq", "_ts")]
    return pa.schema([schema.arrow.field(n) for n in names if n not in ("_seq", "_ts")] + hidden)


def _stored(query: RememberedQuery, schema: Schema, state: Any) -> pa.Table:
    if query.aggregates:
        return answers.to_table(query, schema, state)
    return state.cast(_row_schema(query, schema))


def _frame(table: pa.Table) -> bytes:
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    return encode_frame(ARROW_ROWS, 0, np.empty(0, np.int64), pack_batch(batch))
