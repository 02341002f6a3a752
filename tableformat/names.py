"""Names that users choose, and how they become names of objects and folders.

A name is 1 to 512 bytes of any Unicode text. Stores and disks are less generous: some fold case,
all give `/` and `..` a meaning, and most end a component at 255 bytes. So only plain names are
stored as they are; every other one is written in base32hex, which is lower-case here and sorts as
the bytes do. Its first character is one that no plain name has.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

import xxhash

from strandline.tableformat.errors import CorruptTable, InvalidInput

MAX_NAME_BYTES: Final = 512
MAX_COMPONENT: Final = 200
ENCODED: Final = "~"
LONG: Final = "~~"
"""How the flat form of a name begins that would not fit into one component."""
DEFAULT_NAMESPACE: Final = "default"
_PLAIN: Final = re.compile(r"[a-z0-9_-]{1,100}")
_PIECE: Final = 190
_ID_DIGITS: Final = 16
_FOLDER: Final = re.compile(
    r"(?:~[0-9a-v]{190}~/)?(?:[0-9a-v]{190}~/)*[a-z0-9_~-]{1,192}-[0-9a-f]{16}"
)


def check_name(name: object, what: str = "a name") -> str:
    """Return a name that may be used, or say why not."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is text, not {type(name).__name__}. Nothing was changed.")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{what} must be valid Unicode text, not {name!r}. Nothing was changed."
        ) from None
    if not 1 <= size <= MAX_NAME_BYTES:
        raise InvalidInput(
            f"{what} has 1 to {MAX_NAME_BYTES} bytes, not {size}. Nothing was changed."
        )
    if name in {".", ".."}:
        raise InvalidInput(f"{what} cannot be {name!r}. Nothing was changed.")
    return name


def split_identifier(given: object) -> tuple[str, str]:
    """The namespace and the name that a user means.

    In text the first dot divides the two, and without one the namespace is `default`. A pair says
    the same for names with dots of their own.
    """
    if isinstance(given, (tuple, list)):
        parts = tuple(given)
    elif isinstance(given, str):
        before, dot, after = given.partition(".")
        parts = (before, after) if dot else (DEFAULT_NAMESPACE, given)
    else:
        parts = ()
    if len(parts) != 2:  # noqa: PLR2004 - a pair
        raise InvalidInput(
            f"a table is named 'namespace.name' or ('namespace', 'name'), not {given!r}"
        )
    if "" in parts:
        raise InvalidInput(
            f"{given!r} is no table name: in text, what stands before the first dot is the "
            "namespace. Write ('namespace', 'name') for a name with a dot of its own."
        )
    return check_name(parts[0], "a namespace"), check_name(parts[1], "a table's name")


def base32(data: bytes) -> str:
    """Bytes in 32 letters without capitals, in the order of the bytes."""
    return base64.b32hexencode(data).decode().rstrip("=").lower()


def from_base32(text: str) -> str:
    """What was written in base32hex; no text at all if it was nothing of the kind."""
    letters = text.upper()
    try:
        return base64.b32hexdecode(letters + "=" * (-len(letters) % 8)).decode()
    except ValueError:
        return ""


def is_plain(name: str) -> bool:
    """Whether a name is stored as it is."""
    return _PLAIN.fullmatch(name) is not None


def flat_name(name: str) -> str:
    """One component for a name, different for different names on any disk.

    Names that fit sort among their kind (plain, encoded) as their bytes do. Of a name that does
    not fit this is a hash, and whoever stores an object under it stores the name inside.
    """
    if is_plain(name):
        return name
    encoded = ENCODED + base32(name.encode())
    if len(encoded) <= MAX_COMPONENT:
        return encoded
    return LONG + hashlib.sha256(name.encode()).hexdigest()


def plain_or_decoded(flat: str) -> str | None:
    """The name that a flat form stands for; None for a long name, of which it is a hash."""
    if flat.startswith(LONG):
        return None
    name = from_base32(flat[1:]) if flat.startswith(ENCODED) else flat
    if not name or flat_name(name) != flat:
        raise CorruptTable(f"{flat[:120]!r} is not how a name is stored")
    return name


def folder_name(name: str) -> str:
    """The path of a folder for a name: one component, or several for a long name.

    A component that another follows ends with `~`, which no last one does: so no name's folder
    lies inside another's.
    """
    if is_plain(name):
        return name
    text = base32(name.encode())
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return ENCODED + f"{ENCODED}/".join(pieces)


def encoded_length(size: int) -> int:
    """How long the folder form is of a name with so many bytes that is not plain."""
    letters = -(-8 * size // 5)
    return 1 + letters + 2 * max(0, (letters - 1) // _PIECE)


def data_folder(name: str, random_id: str) -> str:
    """A folder that was never used before, recognisable by its name."""
    return f"{folder_name(name)}-{random_id}"


def name_of_data_folder(path: str) -> str:
    """The name that `data_folder` was made for."""
    if not is_data_folder(path):
        raise CorruptTable(f"{path[:120]!r} is no folder of a name")
    form = path[: -len("-") - _ID_DIGITS]
    if not form.startswith(ENCODED):
        return form
    return from_base32(form[1:].replace(f"{ENCODED}/", ""))


def is_data_folder(path: str) -> bool:
    """Whether a path has the form of `data_folder`."""
    return _FOLDER.fullmatch(path) is not None


def spread(name: str) -> str:
    """Two hex digits that spread names evenly over 256 folders."""
    return str(xxhash.xxh64_hexdigest(name.encode()))[:2]
