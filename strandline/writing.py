"""Opening writers on a table, and recovering their logs.

Loaded when the first writer is opened: readers do without it, and it would add a quarter to the
time of `import strandline`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.place import TablePlace
from strandline.tableformat.actions import MAX_FENCE_BYTES, MAX_WRITER_ID_BYTES
from strandline.tableformat.arguments import check_count, check_text
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.writers.async_writer import AsyncWriter
from strandline.writers.log_places import find_place
from strandline.writers.options import log_options, make_options
from strandline.writers.recovery import Recovered, recover
from strandline.writers.writer import Writer, default_writer_id

if TYPE_CHECKING:
    from strandline.table import Table


def open_writer(table: Table, writer_id: str | None, options: dict[str, Any]) -> Writer:
    """A writer on the table, started."""
    settings = make_options(**options)
    check_text("fence", settings.fence, MAX_FENCE_BYTES)
    return Writer(TablePlace(table), _name(writer_id), settings)


def async_writer(table: Table, writer_id: str | None, options: dict[str, Any]) -> AsyncWriter:
    """A writer on the table, to be opened by `async with`."""
    return AsyncWriter(lambda: table.writer(writer_id, **options))


def recover_log(
    table: Table,
    writer_id: str | None,
    wal: Any,
    *,
    committed_up_to: int | None,
    fence: str | None,
    dry_run: bool,
) -> Recovered:
    """Replay a log without opening a writer."""
    name = _name(writer_id)
    check_text("fence", fence, MAX_FENCE_BYTES)
    check_count("committed_up_to", committed_up_to)
    place = TablePlace(table)
    if not dry_run:
        probe_once_per_process(place.chain.storage)
    table.refresh()
    source = find_place(log_options(wal), table.uuid, name, place.chain.user)
    if source is None:
        return Recovered()
    try:
        found = recover(
            place, name, source, fence=fence, committed_up_to=committed_up_to, dry_run=dry_run
        )
        return replace(found, log=source.where)
    finally:
        source.release()


def _name(writer_id: str | None) -> str:
    return check_text("writer_id", writer_id, MAX_WRITER_ID_BYTES) or default_writer_id()
