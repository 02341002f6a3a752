"""Creating and opening stream tables: one manifest that holds schema and configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.chain import Chain
from strandline.catalog.commit import create
from strandline.catalog.runtime import REAL
from strandline.streams.table import StreamTable
from strandline.tableformat.config import make_config
from strandline.tableformat.errors import InvalidInput, TableExists, TableNotFound
from strandline.tableformat.manifest import READER_FEATURES, STREAM, CommitRecord, Manifest
from strandline.tableformat.schema import schema_from
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.tableformat.stream_layout import DEFAULT_SHARDS, make_layout

if TYPE_CHECKING:
    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.storage import Storage

_FEATURES: Final = READER_FEATURES | {STREAM}


def create_stream(
    storage: Storage,
    schema: Any,
    *,
    row_id: Any = None,
    ttl: Any = None,
    shards: Any = DEFAULT_SHARDS,
    time_column: str | None = None,
    timestamping: str = "client-prefer",
    uncapped: bool = False,
    exist_ok: bool = False,
    runtime: Runtime = REAL,
) -> StreamTable:
    """Create a stream table in a storage that is open already."""
    if ttl is None:
        raise InvalidInput("a stream table needs a ttl, such as '60s': its rows live that long")
    columns = schema_from(schema)
    config = make_config(
        columns, time_column=time_column, ttl=ttl, timestamping=timestamping, uncapped=uncapped
    )
    layout = make_layout(columns, row_id, shards)
    chain = Chain(storage, runtime, features=_FEATURES)
    try:
        existing = _open(chain)
    except TableNotFound:
        pass
    else:
        if exist_ok:
            return existing
        raise TableExists(
            f"there is a Strandline table at {storage.url} already; nothing was changed. Open it "
            "with strandline.open_table(url, kind='stream'), or pass exist_ok=True."
        )
    probe_once_per_process(storage)
    commit_id = runtime.random_hex(16)
    record = CommitRecord(
        version=1, commit_id=commit_id, committed_at=runtime.now_ms(), operation="create"
    )
    first = Manifest(
        table_uuid=runtime.random_hex(16),
        version=1,
        parent_xxh64=None,
        commit=record,
        schema=columns,
        next_column_id=len(columns.columns) + 1,
        config=replace(config, extra={STREAM: layout.to_json()}),
        history=(record,),
        reader_features=(STREAM,),
        writer_features=(STREAM,),
    )
    try:
        return StreamTable(chain, create(chain, first, commit_id))
    except TableExists:
        if not exist_ok:
            raise
        return _open(chain)


def open_stream(storage: Storage, *, runtime: Runtime = REAL) -> StreamTable:
    """Open a stream table in a storage that is open already."""
    return _open(Chain(storage, runtime, features=_FEATURES))


def _open(chain: Chain) -> StreamTable:
    head = chain.find_head()
    if STREAM not in head.manifest.reader_features:
        raise InvalidInput(
            f"the table at {chain.storage.url} is no stream table. Open it with "
            "strandline.open_table, without kind."
        )
    return StreamTable(chain, head)
