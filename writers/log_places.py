"""Where a writer's log lies: a folder of this machine, or objects in a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.tableformat import codec, names
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.urls import parse_url
from strandline.writers.wal_files import FileLog, LogFolder
from strandline.writers.wal_objects import ObjectFolder, ObjectLog

if TYPE_CHECKING:
    from strandline.writers.log import Log, LogOptions


def open_place(
    options: LogOptions, table_uuid: str, writer_id: str, user: str | None = None
) -> LogFolder | ObjectFolder:
    """The place of a writer's log; a folder is locked until it is released.

    Logs of users lie in folders below: who names one folder for all of them mixes nothing.
    """
    folder = _local_folder(options, table_uuid, writer_id, user)
    if folder is not None:
        return LogFolder(folder)
    assert options.dir is not None
    url = options.dir if user is None else f"{options.dir.rstrip('/')}/{names.folder_name(user)}"
    return ObjectFolder(open_storage(url, options.storage_options))


def find_place(
    options: LogOptions, table_uuid: str, writer_id: str, user: str | None = None
) -> LogFolder | ObjectFolder | None:
    """The place of a log that may be there; looking for it makes no folder."""
    folder = _local_folder(options, table_uuid, writer_id, user)
    if folder is not None and not Path(folder).is_dir():
        return None
    return open_place(options, table_uuid, writer_id, user)


def _local_folder(
    options: LogOptions, table_uuid: str, writer_id: str, user: str | None
) -> str | None:
    """The folder of a log on this machine; None for one in an object store."""
    place = None if options.dir is None else parse_url(options.dir)
    if place is not None and place.backend != "local":
        return None
    path = default_log_folder(table_uuid, writer_id) if place is None else place.path
    return path if user is None else str(Path(path) / names.folder_name(user))


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
