"""Creating and opening tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from strandline.catalog.cache_places import open_cache
from strandline.catalog.chain import Chain
from strandline.catalog.commit import create
from strandline.catalog.runtime import REAL
from strandline.table import Table
from strandline.tableformat.arguments import check_options, keywords_of
from strandline.tableformat.config import USER_SCOPE, make_config
from strandline.tableformat.errors import (
    InvalidInput,
    TableDropped,
    TableExists,
    TableNotFound,
)
from strandline.tableformat.manifest import KEYED, USER_SCOPED, CommitRecord, Manifest
from strandline.tableformat.schema import schema_from
from strandline.tableformat.segments import TOMBSTONES
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.versions import check_version, find_version

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from datetime import datetime

    from strandline.catalog.chain import Snapshot
    from strandline.catalog.runtime import Runtime
    from strandline.streams.table import StreamTable
    from strandline.tableformat.config import Config
    from strandline.tableformat.storage import Storage


@overload
def create_table(
    url: str | os.PathLike[str],
    schema: Any,
    *,
    kind: Literal["stream"],
    row_id: str,
    ttl: Any,
    time_column: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    **config: Any,
) -> StreamTable: ...
@overload
def create_table(
    url: str | os.PathLike[str],
    schema: Any,
    *,
    time_column: str | None = None,
    ttl: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    cache: Any = None,
    **config: Any,
) -> Table: ...
def create_table(
    url: str | os.PathLike[str],
    schema: Any,
    *,
    time_column: str | None = None,
    ttl: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    cache: Any = None,
    kind: str | None = None,
    **config: Any,
) -> Table | StreamTable:
    """Create a table and give a handle to it.

    `schema`: an Arrow schema, or a dict of names to types such as `{"ts": "timestamptz"}`.
    `time_column`: where a row's time comes from; without one, it is the time of arrival.
    `ttl`: how long rows live (`"7d"`, `"12h"`); it decides the length of time windows.
    `primary_key`: a column, or several; of rows with the same key, scans give the newest.
    `exist_ok`: open the table if there is one already. `cache`: as for `open_table`.
    `kind`: `"stream"` for short-lived rows of many users, which needs a `ttl` and a `row_id`
    (docs/streams.md).
    Further `config`: timestamping, uncapped, order, stats_columns, row_group_rows,
    writer_retention, shard_by, shards, shard_hash, sort_by, jitter_ms, on_late, zone_rows,
    zone_pages (docs/decisions/006).
    """
    storage = open_storage(url, storage_options)
    if _is_stream(kind):
        from strandline.streams.creation import create_stream  # noqa: PLC0415 - see there

        known = keywords_of(create_stream) - {"exist_ok", "runtime"}
        check_options("a stream table", config, known)
        return create_stream(
            storage, schema, exist_ok=exist_ok, time_column=time_column, ttl=ttl, **config
        )
    return create_in(
        storage,
        schema,
        exist_ok=exist_ok,
        cache=cache,
        time_column=time_column,
        ttl=ttl,
        **config,
    )


def create_in(
    storage: Storage,
    schema: Any,
    *,
    exist_ok: bool = False,
    runtime: Runtime = REAL,
    cache: Any = None,
    **config: Any,
) -> Table:
    """Create a table in a storage that is open already."""
    columns = schema_from(schema)
    check_options("a table", config, keywords_of(make_config))
    try:
        settings = make_config(columns, **config)
    except TypeError as error:
        raise InvalidInput(f"a table option is of a wrong type: {error}") from None
    chain = Chain(storage, runtime, open_cache(cache, is_local=storage.is_local))
    try:
        existing = chain.find_head()
    except TableNotFound:
        pass
    else:
        if exist_ok:
            return _table_of(chain, existing)
        raise TableExists(
            f"there is a Strandline table at {storage.url} already; nothing was changed. Open it "
            "with strandline.open_table, or pass exist_ok=True."
        )
    probe_once_per_process(storage)
    commit_id = runtime.random_hex(16)
    record = CommitRecord(
        version=1, commit_id=commit_id, committed_at=runtime.now_ms(), operation="create"
    )
    columns = columns.requiring(settings.primary_key)
    first = Manifest(
        table_uuid=runtime.random_hex(16),
        version=1,
        parent_xxh64=None,
        commit=record,
        schema=columns,
        next_column_id=len(columns.columns) + 1,
        config=settings,
        history=(record,),
        reader_features=_reader_features(settings),
        writer_features=(USER_SCOPED,) if settings.scope == USER_SCOPE else (),
    )
    try:
        return _table_of(chain, create(chain, first, commit_id))
    except TableExists:
        if not exist_ok:
            raise
        return _table_of(chain, chain.find_head())


@overload
def open_table(
    url: str | os.PathLike[str],
    version: int | str | None = None,
    as_of: datetime | str | int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    cache: Any = None,
) -> Table: ...
@overload
def open_table(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    kind: Literal["stream"],
) -> StreamTable: ...
def open_table(
    url: str | os.PathLike[str],
    version: int | str | None = None,
    as_of: datetime | str | int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    cache: Any = None,
    kind: str | None = None,
) -> Table | StreamTable:
    """Open a table: live, or pinned to a `version`, or to the one that was newest `as_of` a time.

    `version`: a number, or the name of a tag.
    `as_of`: a datetime, ISO text, or milliseconds since 1970; without a zone it is UTC.
    `cache`: keep copies of metadata on this machine's disk, for later processes too: True (the
    user's cache folder), a folder, a dict of `dir` and `bytes`, or False. By default the
    environment variable STRANDLINE_CACHE decides, and without it there is none (docs/storage.md).
    `kind`: `"stream"` for a stream table, which has one version only.
    """
    if _is_stream(kind):
        from strandline.streams.creation import open_stream  # noqa: PLC0415 - see there

        if version is not None or as_of is not None:
            raise InvalidInput("a stream table keeps no versions: leave version and as_of out")
        return open_stream(open_storage(url, storage_options))
    return open_in(open_storage(url, storage_options), version, as_of, cache=cache)


def open_in(
    storage: Storage,
    version: int | str | None = None,
    as_of: datetime | str | int | None = None,
    *,
    runtime: Runtime = REAL,
    cache: Any = None,
    dropped_ok: bool = False,
) -> Table:
    """Open a table in a storage that is open already."""
    moment = check_version(version, as_of)
    chain = Chain(storage, runtime, open_cache(cache, is_local=storage.is_local))
    head = chain.find_head()
    if head.manifest.dropped_at is not None and not dropped_ok:
        raise TableDropped(head.manifest.dropped_at)
    return _table_of(chain, head, pinned=find_version(chain, head, version, moment))


def _table_of(chain: Chain, head: Snapshot, *, pinned: Snapshot | None = None) -> Table:
    """The handle that fits the table's scope."""
    if head.manifest.config.scope != USER_SCOPE:
        return Table(chain, head, pinned=pinned)
    from strandline.users import UsersTable  # noqa: PLC0415 - most tables have no users

    return UsersTable(chain, head, pinned=pinned)


def _reader_features(settings: Config) -> tuple[str, ...]:
    """What a reader has to know not to return wrong rows.

    One that knows nothing of users would take their table for an empty one. A user's chain sets
    no features, so where users may delete by key the table says so from the beginning.
    """
    of_users = settings.scope == USER_SCOPE
    keyed = (KEYED, *((TOMBSTONES,) if of_users else ())) if settings.primary_key else ()
    return (*keyed, *((USER_SCOPED,) if of_users else ()))


def _is_stream(kind: str | None) -> bool:
    """Stream tables have code of their own, which other programs need not load."""
    if kind not in (None, "stream"):
        raise InvalidInput(f"kind is 'stream' or left out, not {kind!r}")
    return kind == "stream"
