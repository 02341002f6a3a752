"""Names that people choose, as names of files and folders that cannot do harm.

A name is 1 to 512 bytes of any Unicode text. Simple names stand for themselves; all others are
written in a 32-letter alphabet without capitals behind a sign that no simple name begins with. So
no name leaves its folder, means two files on a disk that ignores case, or nests inside another.
"""

from __future__ import annotations

import re
from base64 import b32hexdecode, b32hexencode
from typing import Final

from strandline.tableformat.errors import CorruptTable, InvalidInput

MAX_NAME_BYTES: Final = 512
COMPONENT: Final = 200
"""The longest part of an encoded name: disks allow 255 bytes, and endings are added."""
SIGN: Final = "="
_SIMPLE: Final = re.compile(r"[a-z0-9_-]{1,100}")
_ENCODED: Final = re.compile(r"=[0-9a-v]+")


def check_name(name: object, what: str = "a name") -> str:
    """The name, or an error that says what is wrong with it."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is text, not {type(name).__name__}. Nothing was changed.")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid Unicode text. Nothing was changed.") from None
    if not 1 <= size <= MAX_NAME_BYTES or name in (".", ".."):
        raise InvalidInput(
            f"{what} has 1 to {MAX_NAME_BYTES} bytes and is neither '.' nor '..'; this one has "
            f"{size} bytes. Nothing was changed."
        )
    return name


def encode_name(name: str) -> str:
    """The path of a checked name: one component, or several for a long one."""
    if _SIMPLE.fullmatch(name):
        return name
    text = SIGN + b32hexencode(name.encode()).decode().rstrip("=").lower()
    return "/".join(text[i : i + COMPONENT] for i in range(0, len(text), COMPONENT))


def decode_name(path: str) -> str:
    """The name that has this path; `CorruptTable` for a path that no name has."""
    if _SIMPLE.fullmatch(path):
        return path
    text = path.replace("/", "")
    if _ENCODED.fullmatch(text):
        letters = text[1:].upper()
        try:
            name = b32hexdecode(letters + "=" * (-len(letters) % 8)).decode()
        except ValueError:
            name = ""
        if name and encode_name(name) == path:
            return name
    raise CorruptTable(f"{path[:120]!r} is not an encoded name")
