"""Names of files inside a table, under one strict grammar.

A path that does not fit the grammar is refused, never repaired: metadata is untrusted input, and
a repaired path is how a manifest would reach a file outside its table.
"""

from __future__ import annotations

import re
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.tableformat import names
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.values import INT64_MAX
from strandline.tableformat.windows import Window, parse_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

META: Final = "_strandline/"
MANIFESTS: Final = META + "manifests/"
PAGES: Final = META + "pages/"
GC_MARKERS: Final = META + "gc/"
USER_CARDS: Final = META + "user_names/"
MANIFEST_SUFFIX: Final = ".json.lz4"
_DIGITS: Final = 20

_NUMBER = r"(0|[1-9][0-9]{0,18})"
_ID = r"([0-9a-f]{16})"
_MANIFEST: Final = re.compile(r"([0-9]{20})\.json\.lz4")
_GC: Final = re.compile(r"[0-9]{20}")
_PAGE: Final = re.compile(rf"_strandline/pages/{_NUMBER}-{_ID}\.(parquet|json\.lz4)")
_SHARD: Final = re.compile(r"(0|[1-9][0-9]{0,5})")
_SEGMENT: Final = re.compile(
    rf"(w[0-9]+-[0-9]+)/shard-{_SHARD.pattern}/(batch|compact|late)-{_NUMBER}-{_ID}\.parquet"
)
_SEGMENTS: Final = re.compile(rf"(?:{_SEGMENT.pattern}\n)*+")


def _descending(version: int) -> str:
    return f"{INT64_MAX - version:0{_DIGITS}d}"


def manifest_path(version: int) -> str:
    """Where a version's root manifest lies; the newest sorts first."""
    return f"{MANIFESTS}{_descending(version)}{MANIFEST_SUFFIX}"


def manifest_version(name: str) -> int | None:
    """The version a file name in `manifests/` stands for; None for a name that is no manifest."""
    match = _MANIFEST.fullmatch(name)
    version = INT64_MAX - int(match[1]) if match else 0
    return version if 1 <= version <= INT64_MAX else None


def gc_marker_path(version: int) -> str:
    """The marker that says: versions below this one may be gone."""
    return GC_MARKERS + _descending(version)


def gc_marker_version(name: str) -> int | None:
    """The version a marker's name stands for; None for another name."""
    version = INT64_MAX - int(name) if _GC.fullmatch(name) else 0
    return version if 1 <= version <= INT64_MAX else None


def user_folder(user: str) -> str:
    """Where the chain of one user of a table lies."""
    return f"{META}users/{names.spread(user)}/{names.folder_name(user)}/"


def user_card(user: str) -> str:
    """The small object that says there is this user."""
    return f"{USER_CARDS}{names.spread(user)}/{names.flat_name(user)}"


def segment_path(window: Window, shard: int, kind: str, base_version: int, file_id: str) -> str:
    """The name of a data file; `base_version` is the version its writer had seen."""
    return f"{window.prefix}/shard-{shard}/{kind}-{base_version}-{file_id}.parquet"


def segment_page_path(base_version: int, file_id: str) -> str:
    """The name of a page that lists segments."""
    return f"{PAGES}{base_version}-{file_id}.parquet"


def document_page_path(base_version: int, file_id: str) -> str:
    """The name of a page that lists folded windows or writer positions."""
    return f"{PAGES}{base_version}-{file_id}{MANIFEST_SUFFIX}"


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What a segment's path says."""

    window: Window
    shard: int
    base_version: int


def parse_segment_path(path: object) -> SegmentName:
    """Check a data file's path against the grammar and take it apart."""
    match = _SEGMENT.fullmatch(path) if isinstance(path, str) else None
    if not match:
        raise CorruptTable(f"segment path {_shown(path)} does not fit the grammar of SPEC.md")
    return SegmentName(parse_prefix(match[1]), int(match[2]), int(match[4]))


def are_segment_paths(texts: Sequence[str]) -> bool:
    """Whether all of them fit the grammar of data files; asked at once, as there may be many."""
    return _SEGMENTS.fullmatch("\n".join((*texts, ""))) is not None


def is_shard(text: str) -> bool:
    """Whether text is a shard's number as paths carry it."""
    return _SHARD.fullmatch(text) is not None


def parse_page_path(path: object, suffix: str) -> int:
    """Check a page's path against the grammar; the version its writer had seen."""
    match = _PAGE.fullmatch(path) if isinstance(path, str) else None
    if not match or match[3] != suffix.removeprefix("."):
        raise CorruptTable(f"page path {_shown(path)} does not fit the grammar of SPEC.md")
    return int(match[1])


def check_removable(path: object) -> str:
    """A path that a commit may list as removed: a data file or a page, and nothing else."""
    if isinstance(path, str):
        if _PAGE.fullmatch(path):
            return path
        if _SEGMENT.fullmatch(path):
            parse_segment_path(path)
            return path
    raise CorruptTable(f"removed file {_shown(path)} does not fit the grammar of SPEC.md")


def _shown(path: object) -> str:
    # A plain repr of hostile nesting would exhaust the stack.
    return repr(path)[:120] if isinstance(path, str) else reprlib.repr(path)[:120]
