"""The older spelling of names, as paths: users of stream tables, and aliases of queries.

Names and their alphabet are those of `names`. Two spellings exist because bytes on storage stay:
this one marks an encoded name with `=` and cuts it into components of 200, sign and all, and gives
each name one path, where `names` marks it with `~` and has a flat form and a folder form. `~`
also ends every component that another follows, so that folders of tables never nest; logs and
documents have an ending of their own and need no such mark.
"""

from __future__ import annotations

import re
from typing import Final

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.names import base32, check_name, from_base32, is_plain

__all__ = ["check_name", "decode_name", "encode_name"]

COMPONENT: Final = 200
"""The longest part of an encoded name: disks allow 255 bytes, and endings are added."""
SIGN: Final = "="
_ENCODED: Final = re.compile(r"=[0-9a-v]+")


def encode_name(name: str) -> str:
    """The path of a checked name: one component, or several for a long one."""
    if is_plain(name):
        return name
    text = SIGN + base32(name.encode())
    return "/".join(text[i : i + COMPONENT] for i in range(0, len(text), COMPONENT))


def decode_name(path: str) -> str:
    """The name that has this path; `CorruptTable` for a path that no name has."""
    if is_plain(path):
        return path
    text = path.replace("/", "")
    name = from_base32(text[1:]) if _ENCODED.fullmatch(text) else ""
    if not name or encode_name(name) != path:
        raise CorruptTable(f"{path[:120]!r} is not an encoded name")
    return name
