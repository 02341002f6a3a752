"""Where a writer's log lies: a folder of this machine, or objects in a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.tableformat import codec
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.urls import parse_url
from strandline.writers.wal_files import FileLog, LogFolder
from strandline.writers.wal_objects import ObjectFolder, ObjectLog

if TYPE_CHECKING:
    from strandline.writers.log import Log, LogOptions


def open_place(options: LogOptions, table_uuid: str, writer_id: str) -> LogFolder | ObjectFolder:
    """The place of a writer's log; a folder is locked until it is released."""
    if options.dir is None:
        return LogFolder(default_log_folder(table_uuid, writer_id))
    place = parse_url(options.dir)
    if place.backend == "local":
        return LogFolder(place.path)
    return ObjectFolder(open_storage(options.dir, options.storage_options))


def find_place(
    options: LogOptions, table_uuid: str, writer_id: str
) -> LogFolder | ObjectFolder | None:
    """The place of a log that may be there; looking for it makes no folder."""
    place = None if options.dir is None else parse_url(options.dir)
    path = default_log_folder(table_uuid, writer_id) if place is None else place.path
    if (place is None or place.backend == "local") and not Path(path).is_dir():
        return None
    return open_place(options, table_uuid, writer_id)


def open_log(place: LogFolder | ObjectFolder, options: LogOptions) -> Log:
    """A new log in a place that was recovered."""
    if isinstance(place, ObjectFolder):
        return ObjectLog(place, options)
    return FileLog(place, options)


def default_log_folder(table_uuid: str, writer_id: str) -> str:
    """A folder of the user's own, for one writer of one table."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = codec.checksum(writer_id.encode())
    return str(Path(state) / "strandline" / "wal" / table_uuid / name)
