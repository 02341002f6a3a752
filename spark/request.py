"""What a Spark user may ask of a table: the options of `format("strandline")`, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.arguments import check_count, check_names
from strandline.tableformat.errors import InvalidInput
from strandline.versions import milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_NUMBERS: Final = {"startSeq": "start_seq", "endSeq": "end_seq", "versionAsOf": "version"}
_TIMES: Final = {"startTime": "start_ts", "endTime": "end_ts", "timestampAsOf": "as_of"}
_OTHERS: Final = frozenset({"path", "columns", "hiddencolumns", "allrows"})
_ELSEWHERE: Final = frozenset(
    (
        *("txnappid", "txnversion", "checkpointlocation", "timecolumn", "ttl", "mode", "queryname"),
        *("startingversion", "startingtimestamp", "maxfilespertrigger", "maxbytespertrigger"),
        "splitbytes",
    )
)
"""Of writes and streams; they mean nothing to a read and may stand beside one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Which rows and columns of a table, at which version."""

    version: int | None = None
    as_of: datetime | str | int | None = None
    start_seq: int | None = None
    end_seq: int | None = None
    """Exclusive."""
    start_ts: int | None = None
    end_ts: int | None = None
    """Inclusive."""
    columns: Sequence[str] | None = None
    """None: all, without the hidden ones."""
    hidden_columns: bool = False
    """Whether `_seq`, `_ts` and `_window` come behind the others."""
    all_rows: bool = False
    """Of a keyed table: replaced rows, too."""

    def __post_init__(self) -> None:
        if self.columns is not None:
            check_names("columns", self.columns)
        if self.columns is not None and self.hidden_columns:
            raise InvalidInput("give columns, which may name hidden ones, or hidden_columns")
        for name in ("start_seq", "end_seq", "start_ts", "end_ts"):
            check_count(name, getattr(self, name))

    @property
    def is_pinned(self) -> bool:
        """Whether a version was named, by number or time."""
        return self.version is not None or self.as_of is not None


def from_options(options: Mapping[str, str]) -> tuple[str, ReadRequest]:
    """The table's URL and the request that options in Spark's spelling stand for."""
    given = {name.lower(): value for name, value in options.items() if is_for_tables(name)}
    if "filter" in given:
        raise InvalidInput("say .where(…) or WHERE instead of the option filter: it chooses files")
    known = {*(name.lower() for name in (*_NUMBERS, *_TIMES)), *_OTHERS, *_ELSEWHERE}
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidInput(
            f"format('strandline') knows no option {unknown[0]!r}; it reads with path, columns, "
            "hiddenColumns, allRows, startSeq, endSeq, startTime, endTime, versionAsOf and "
            "timestampAsOf"
        )
    if not given.get("path"):
        raise InvalidInput(
            "say where the table is: load(url) with one URL, option path, or LOCATION 'url'"
        )
    fields: dict[str, Any] = {}
    for option, field in _NUMBERS.items():
        if option.lower() in given:
            fields[field] = _integer(option, given[option.lower()])
    for option, field in _TIMES.items():
        if option.lower() in given:
            fields[field] = _moment(option, given[option.lower()])
    if "columns" in given:
        fields["columns"] = [name.strip() for name in given["columns"].split(",")]
    fields["hidden_columns"] = _flag("hiddenColumns", given.get("hiddencolumns", "false"))
    fields["all_rows"] = _flag("allRows", given.get("allrows", "false"))
    return url_from_spark(given["path"]), ReadRequest(**fields)


def is_for_tables(option: str) -> bool:
    """Whether an option is meant for us; some are Spark's own."""
    return not option.startswith(("__", "spark.", "serialization."))


def url_from_spark(path: str) -> str:
    """A table URL from a path as Spark's catalog spells it: `file:/…` is plain text there."""
    local = re.fullmatch(r"file:/+(.*)", path, re.DOTALL)
    if local is not None and not path.startswith("file://"):
        return "/" + local[1]
    return path


def _integer(option: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII):
        raise InvalidInput(f"option {option} must be an integer of 0 or more, not {text!r}")
    return int(text)


def _moment(option: str, text: str) -> int:
    try:
        return milliseconds(int(text) if text.isdecimal() else text)
    except InvalidInput:
        raise InvalidInput(
            f"option {option} must be milliseconds since 1970, or ISO text such as "
            f"'2026-01-31T12:00:00+00:00', not {text!r}"
        ) from None


def _flag(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidInput(f"option {option} must be true or false, not {text!r}")
    return text.lower() == "true"
