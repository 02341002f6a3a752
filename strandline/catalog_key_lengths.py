"""Whether a name fits into the keys of an object store, asked before anything has the name.

Two long names and a root deep in its bucket can make keys that no object store takes. Found out
later, a table would be there that cannot be appended to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.catalog.name_chain import META
from strandline.tableformat import names
from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from strandline.tableformat.storage import Storage

MOST_KEY_BYTES: Final = 1_024
"""Of S3, Google Cloud Storage and Azure alike; disks end each component instead, at 255."""
IN_A_TABLE: Final = 100
"""The longest path of a table's own files; those of users and aliases say themselves if not."""
_RECORDS: Final = len(f"{META}tables/") + len("/") + names.MAX_COMPONENT + 30
"""Around a namespace's folder in the keys of records: `!`, number and ending are 30."""
_RANDOM_ID: Final = len("-") + 16
_DATA: Final = len("/data/")


def check_namespace(storage: Storage, name: str) -> None:
    """Refuse a namespace in which not every name could have a record."""
    _check(storage, name, "the namespace", _RANDOM_ID + _RECORDS)


def check_table(storage: Storage, namespace_folder: str, name: str) -> None:
    """Refuse a table whose files could not be written."""
    around = len(namespace_folder) + _DATA + _RANDOM_ID + len("/") + IN_A_TABLE
    _check(storage, name, "the table", around)


def _check(storage: Storage, name: str, what: str, around: int) -> None:
    if storage.is_local:
        return
    root = storage.url.partition("://")[2].partition("/")[2]
    room = MOST_KEY_BYTES - around - (len(root.encode()) + len("/") if root else 0)
    if len(names.folder_name(name)) <= room:
        return
    fits = [size for size in range(names.MAX_NAME_BYTES) if names.encoded_length(size) <= room]
    at_most = f"at most {fits[-1]} bytes" if fits[1:] else "no name at all: its root is too deep"
    raise InvalidInput(
        f"{what} {name[:60]!r} has {len(name.encode())} bytes, and here there is room for "
        f"{at_most}. Object stores end keys at {MOST_KEY_BYTES} bytes, which root, namespace and "
        f"table share, and most names are stored as 1.6 times their bytes. {what.capitalize()} "
        "was not created; choose a shorter name."
    )
