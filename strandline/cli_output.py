"""What the command line prints: JSON for programs, aligned text or a drawn table for people."""

from __future__ import annotations

import csv
import json
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from strandline.cli_values import plain_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Rows(Protocol):
    """A scan, or an Arrow table."""

    @property
    def schema(self) -> pa.Schema: ...

    def to_batches(self) -> Iterable[pa.RecordBatch]: ...


ROWS_ON_SCREEN = 50
"""Rows that a scan shows as a table when no limit was given."""


def print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing and what is known of it."""
    if as_json:
        _print_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {_shown(value)}")


def print_rows(names: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> None:
    """Many things of one kind."""
    if as_json:
        _print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    texts = [[_shown(value) for value in row] for row in rows]
    if _on_terminal() and find_spec("rich") is not None:
        _print_rich(names, texts)
    else:
        _print_aligned(names, texts)


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    # A control character could move the cursor or hide a line.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


def _print_aligned(names: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    for line in (names, ["-" * width for width in widths], *texts):
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def _print_rich(names: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - an optional dependency
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table()
    for name in names:
        table.add_column(Text(name))
    for line in texts:
        table.add_row(*map(Text, line))  # as Text: square brackets in data are not markup
    Console().print(table)


# --- the rows of a scan ------------------------------------------------------------------------


def print_scan(scan: Rows, kind: str, *, cut_at: int | None) -> None:
    """The rows of a scan. `cut_at`: rows after which a table says that there is more."""
    {"table": _as_table, "json": _as_json, "jsonl": _as_jsonl, "csv": _as_csv, "arrow": _as_arrow}[
        kind
    ](scan, cut_at)


def _all_rows(scan: Rows) -> Iterable[list[Any]]:
    for batch in scan.to_batches():
        yield from plain_rows(batch)


def _as_table(scan: Rows, cut_at: int | None) -> None:
    shown: list[list[Any]] = []
    for row in _all_rows(scan):
        if cut_at is not None and len(shown) == cut_at:
            print_rows(scan.schema.names, shown, as_json=False)
            print(
                f"… and more: these are the first {cut_at} rows; --limit shows as many as you say"
            )
            return
        shown.append(row)
    print_rows(scan.schema.names, shown, as_json=False)
    print(f"{len(shown)} row{'' if len(shown) == 1 else 's'}")


def _as_json(scan: Rows, _: int | None) -> None:
    separator = "["
    for row in _all_rows(scan):
        document = dict(zip(scan.schema.names, row, strict=True))
        print(f"{separator}{json.dumps(document, ensure_ascii=False)}", end="")
        separator = ",\n "
    print("[]" if separator == "[" else "]")


def _as_jsonl(scan: Rows, _: int | None) -> None:
    for row in _all_rows(scan):
        print(json.dumps(dict(zip(scan.schema.names, row, strict=True)), ensure_ascii=False))


def _as_csv(scan: Rows, _: int | None) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(scan.schema.names)
    for row in _all_rows(scan):
        writer.writerow([json.dumps(v) if isinstance(v, (dict, list)) else v for v in row])


def _as_arrow(scan: Rows, _: int | None) -> None:
    with pa.ipc.new_stream(sys.stdout.buffer, scan.schema) as writer:
        for batch in scan.to_batches():
            writer.write_batch(batch)
