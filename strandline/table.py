"""The table: what users hold in their hands."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.catalog.commit import MetadataChange, commit
from strandline.changing import ReplacesRows
from strandline.lifecycle import EndsThings
from strandline.place import TablePlace
from strandline.readers.request import Request
from strandline.reading import ReadsRows
from strandline.remembering import RemembersQueries
from strandline.tableformat import schema as schemas
from strandline.tableformat import types
from strandline.tableformat.actions import (
    MAX_FENCE_BYTES,
    EvolveSchema,
    SetDropped,
    SetFence,
)
from strandline.tableformat.arguments import check_names, check_text
from strandline.tableformat.errors import InvalidInput, ReadOnlyTable, TableDropped
from strandline.tableformat.manifest import check_writable
from strandline.tableformat.stores.probe import probe_once_per_process

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from datetime import datetime

    import pyarrow as pa

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.catalog.commit import Change, Committed
    from strandline.catalog.manifest_service import ManifestService
    from strandline.maintenance.snapshots import SnapshotInfo
    from strandline.maintenance.verify import VerifyReport
    from strandline.tableformat.config import Config
    from strandline.tableformat.manifest import Manifest
    from strandline.writers.async_writer import AsyncWriter
    from strandline.writers.recovery import Recovered
    from strandline.writers.results import Commit
    from strandline.writers.writer import Writer


class Table(ReadsRows, ReplacesRows, EndsThings, RemembersQueries):
    """A table at a URL. Live unless opened at a version; safe to share between threads."""

    def __init__(self, chain: Chain, head: Snapshot, *, pinned: Snapshot | None = None) -> None:
        self._chain = chain
        self._head = head
        self._pinned = pinned
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        kind = f" at version {self._pinned.manifest.version}" if self._pinned else ""
        return f"<strandline.Table {self.url}{kind}>"

    # --- what it is ---

    @property
    def url(self) -> str:
        """Where the table lies."""
        return self._chain.storage.url

    @property
    def _snapshot(self) -> Snapshot:
        return self._pinned or self._head

    @property
    def version(self) -> int:
        """The version this handle has seen last."""
        return self._snapshot.manifest.version

    @property
    def uuid(self) -> str:
        """The table's identity, given when it was created."""
        return self._snapshot.manifest.table_uuid

    @property
    def schema(self) -> pa.Schema:
        """The columns, as scans return them."""
        return self._snapshot.manifest.schema.arrow

    @property
    def config(self) -> Config:
        """How the table stamps, orders and keeps its rows."""
        return self._snapshot.manifest.config

    @property
    def manifest(self) -> Manifest:
        """All metadata of the version this handle has seen last, for tools that do more."""
        return self._snapshot.manifest

    @property
    def manifest_service(self) -> ManifestService:
        """Where this handle's metadata comes from: its state, and counters for each tier."""
        return self._chain.service

    def verify(self, *, deep: bool = False, repair: bool = False) -> VerifyReport:
        """Check every file of the version against its checksums; `deep` reads all rows too.

        `repair`: give segments whose index is missing or damaged new files, and check again.
        """
        from strandline.maintenance.verify import verify  # noqa: PLC0415 - kernels

        report = verify(self._chain.service, self._shown(), deep=deep)
        if not repair or report.ok:
            return report
        from strandline.maintenance.repair import repair_indexes  # noqa: PLC0415 - rarely

        self._check_writable()
        repaired = repair_indexes(self._place(), report)
        after = verify(self._chain.service, self._shown(), deep=deep)
        return replace(after, repaired=tuple(repaired))

    def _shown(self) -> Manifest:
        """The version that is read, with the floor and the trim point that count for it."""
        manifest = self._latest().manifest
        floors = self._visible(manifest)
        return replace(manifest, floor_ts=floors["floor_ts"], trim_seq=floors["trim_seq"])

    def export(
        self,
        file_url: str | os.PathLike[str],
        *,
        start_seq: int | None = None,
        end_seq: int | None = None,
        start_ts: int | None = None,
        end_ts: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> SnapshotInfo:
        """Write the rows of a range into one portable file; `strandline.replay` reads it.

        Bounds are those of `scan`. `file_url`: anything that fsspec opens, with `storage_options`
        of its own.
        """
        from strandline.maintenance import snapshots  # noqa: PLC0415 - few programs export

        manifest = self._latest().manifest
        columns = [*manifest.schema.arrow.names, "_seq", "_ts"]
        request = Request(
            columns=columns,
            start_seq=start_seq,
            end_seq=end_seq,
            start_ts=start_ts,
            end_ts=end_ts,
        )
        scan = self._scan(manifest, request)
        return snapshots.export(
            scan.to_batches(),
            manifest,
            self._chain.runtime,
            file_url,
            storage_options,
            overwrite=overwrite,
            start_seq=start_seq,
            end_seq=end_seq,
            start_ts=start_ts,
            end_ts=end_ts,
        )

    def refresh(self) -> Table:
        """Look for a newer version; every scan does this by itself."""
        if self._pinned is None:
            self._see(self._chain.refresh(self._head))
        return self

    def _latest(self) -> Snapshot:
        self.refresh()
        dropped_at = self._head.manifest.dropped_at
        if dropped_at is not None:
            raise TableDropped(dropped_at)
        return self._snapshot

    def _see(self, snapshot: Snapshot) -> None:
        with self._lock:
            if _age(snapshot) >= _age(self._head):
                self._head = snapshot

    def user(
        self,
        name: str,
        version: int | str | None = None,
        as_of: datetime | str | int | None = None,
    ) -> Table:
        """The rows of one user, in a table that was created with `scope="user"`."""
        del version, as_of
        raise InvalidInput(
            f"this table has scope='shared': its rows belong to no user such as {name!r}. Create "
            "it with scope='user' for that."
        )

    # --- writing ---

    def append(
        self,
        data: Any,
        writer_id: str | None = None,
        batch: int | None = None,
        *,
        fence: str | None = None,
        match_seq: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Commit:
        """Append rows in one commit; when it returns, they are durable, once and only once.

        `data`: Arrow, pandas, Polars, a list of dicts, or anything with an Arrow C stream. With
        `writer_id` and a growing `batch` number, sending a batch again is safe: what is in the
        table already returns its first result.
        """
        from strandline import appending  # noqa: PLC0415 - see there

        conditions = appending.conditions_from(writer_id, batch, fence, match_seq)
        stored_properties = appending.properties_from(properties)
        self._check_writable()
        return appending.append_rows(TablePlace(self), data, conditions, stored_properties)

    def writer(self, writer_id: str | None = None, **options: Any) -> Writer:
        """Open a writer: append from any thread, committed in the background, exactly once.

        `writer_id`: who writes; by default the name of this machine. One process at a time.
        `ack`: what an append that returned promises: `"wal"` (default), `"committed"`,
        `"buffered"`. `wal`: the folder or URL of its log, False for none, or a dict of options
        (`dir, buffered, buffer_size, flush_each_write, fsync, fsync_every_n`). Further: `fence`,
        `flush_rows`, `flush_bytes`, `flush_age`, `memory_bytes`, `timeout_s`, `close_timeout_s`.
        """
        self._check_writable()
        from strandline import writing  # noqa: PLC0415 - see there

        return writing.open_writer(self, writer_id, options)

    def async_writer(self, writer_id: str | None = None, **options: Any) -> AsyncWriter:
        """A writer for asyncio programs, with the options of `writer`; opened by `async with`."""
        from strandline import writing  # noqa: PLC0415 - see there

        return writing.async_writer(self, writer_id, options)

    def recover(
        self,
        writer_id: str | None = None,
        wal: Any = None,
        *,
        committed_up_to: int | None = None,
        fence: str | None = None,
        dry_run: bool = False,
    ) -> Recovered:
        """Commit what a writer that is gone left in its log; opening it again does the same.

        `wal`: where the log lies, as for `writer`. `committed_up_to`: the newest record that is
        certainly in the table, where the table no longer knows. `dry_run`: only look.
        """
        self._check_writable()
        from strandline import writing  # noqa: PLC0415 - see there

        return writing.recover_log(
            self, writer_id, wal, committed_up_to=committed_up_to, fence=fence, dry_run=dry_run
        )

    def evolve(
        self,
        *,
        add: object = None,
        rename: Mapping[str, str] | None = None,
        drop: Iterable[str] = (),
        widen: Mapping[str, Any] | None = None,
        reorder: Iterable[str] = (),
        comments: Mapping[str, str | None] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> pa.Schema:
        """Change the columns; no data file is touched. Gives the new schema.

        `add`: a dict of names to types, or Arrow fields. `widen`: a dict of names to wider types.
        `reorder`: names that come first, in this order. `defaults`: what later appends store
        where the field is left out.
        """
        _check_maps(rename=rename, widen=widen, comments=comments, defaults=defaults)
        change = schemas.Evolution(
            add=() if add is None else tuple(schemas.fields_from(add)),
            rename=tuple((rename or {}).items()),
            drop=check_names("drop", drop),
            widen=tuple((name, _column_type(name, kind)) for name, kind in (widen or {}).items()),
            reorder=check_names("reorder", reorder),
            comments=tuple((comments or {}).items()),
            defaults=tuple((defaults or {}).items()),
        )
        if change == schemas.Evolution():
            raise InvalidInput("evolve was asked to change nothing")
        self._commit_metadata(MetadataChange((EvolveSchema(change),)), "evolve")
        return self.schema

    def fence(self, token: str | None) -> None:
        """Let only appends with this token through from now on; None opens the table again."""
        check_text("a fencing token", token, MAX_FENCE_BYTES)
        self._commit_metadata(MetadataChange((SetFence(token),)), "fence")

    def mark_dropped(self, *, dropped: bool = True) -> int | None:
        """Drop the table or bring it back, as a commit; when it was dropped. For catalogs."""
        if (self.refresh().manifest.dropped_at is not None) != dropped:
            change = MetadataChange((SetDropped(dropped),))
            self._commit_metadata(change, "drop" if dropped else "undrop")
        return self.manifest.dropped_at

    def _commit_metadata(self, change: MetadataChange, operation: str) -> None:
        self._check_writable()
        probe_once_per_process(self._chain.storage)
        self._commit(change, operation, ())

    def _commit(
        self, change: Change, operation: str, properties: tuple[tuple[str, str], ...]
    ) -> Committed:
        done = commit(self._chain, self._head, change, operation=operation, properties=properties)
        self._see(done.snapshot)
        return done

    def _check_writable(self) -> None:
        if self._pinned is not None:
            raise ReadOnlyTable(
                f"this handle reads version {self.version} and cannot write. Open the table "
                "without version and as_of."
            )
        # Before any file is written: one of a commit that must not be would stay behind.
        check_writable(self._head.manifest)


def _age(snapshot: Snapshot) -> tuple[int, int]:
    """By which of two snapshots the newer is known: of a user's, the table may have moved alone."""
    return snapshot.manifest.version, snapshot.manifest.root_version or 0


def _column_type(name: str, kind: Any) -> types.ColumnType:
    (field,) = schemas.fields_from({name: kind})
    return types.from_arrow(field.type, f"column {name!r}")


def _check_maps(**given: object) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise InvalidInput(f"{name} is a dict by column name, not {type(value).__name__}")
