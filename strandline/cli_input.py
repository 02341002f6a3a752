"""What the command line reads: options, schemas, and files of rows."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.cli_values import typed_rows
from strandline.tableformat import types
from strandline.tableformat.errors import CorruptTable, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.tableformat.schema import Schema

FORMATS = ("parquet", "arrow", "jsonl", "csv")
_SUFFIXES = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
}


# --- pairs and lists ---------------------------------------------------------------------------


def names(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",")] if text else []


def pairs(given: Iterable[str], what: str, separator: str = "=") -> dict[str, str]:
    """A dict from `left=right` arguments. The value stays out of errors: it may be a secret."""
    out: dict[str, str] = {}
    for text in given:
        left, found, right = text.partition(separator)
        if not found or not left:
            raise InvalidInput(
                f"{what} is written NAME{separator}VALUE, and one has no '{separator}'"
            )
        out[left.strip()] = right
    return out


def storage_options(given: Iterable[str], file: str | None) -> dict[str, Any] | None:
    """Options for the store, from a JSON file and from `key=value`; dots make nested keys."""
    options: dict[str, Any] = {}
    if file is not None:
        loaded = _json_file(file)
        if not isinstance(loaded, dict):
            raise InvalidInput(f"{file} must hold a JSON object of storage options")
        options.update(loaded)
    for key, text in pairs(given, "--storage-option").items():
        *outer, last = key.split(".")
        target = options
        for name in outer:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise InvalidInput(f"--storage-option {key}: {name} has a value of its own")
        target[last] = _option_value(key, text)
    return options or None


def _option_value(key: str, text: str) -> Any:
    """Objects, lists and flags are JSON; all else stays text, because a secret may be digits."""
    if text in ("true", "false", "null") or text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            raise InvalidInput(f"--storage-option {key}: the value is not valid JSON") from None
    return text


def milliseconds(text: str | None) -> int | None:
    """A moment as ISO text (UTC unless it says otherwise) or as milliseconds since 1970."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is neither a time such as 2026-01-31T12:00 nor ms") from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


# --- schemas -----------------------------------------------------------------------------------


def schema(text: str) -> list[pa.Field]:
    """Columns from `name:type,…`, or from a JSON or a Parquet file."""
    if text.endswith(".parquet"):
        import pyarrow.parquet as pq  # noqa: PLC0415 - only this road needs it

        with _opened(text) as file:
            return list(pq.read_schema(file))
    if text.endswith(".json"):
        return _fields_from_json(_json_file(text), text)
    return [column(part) for part in _split(text)]


def column(text: str) -> pa.Field:
    """One `name:type`."""
    name, found, kind = text.partition(":")
    if not found:
        raise InvalidInput(f"{text!r} is not NAME:TYPE, such as amount:decimal(10,2)")
    return pa.field(name.strip(), _arrow_type(name, kind.strip()))


def columns(given: Iterable[str]) -> list[pa.Field]:
    """Columns from arguments that each hold one or more `name:type`."""
    return [column(part) for text in given for part in _split(text)]


def _split(text: str) -> Iterator[str]:
    """Parts between commas, except those inside brackets: `amount:decimal(10,2)` is one part."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    yield text[start:].strip()


def _arrow_type(name: str, kind: Any) -> pa.DataType:
    try:
        return types.to_arrow(types.from_json(kind))
    except CorruptTable:
        raise InvalidInput(
            f"column {name!r}: {kind!r} is not a type. Types are bool, int8 to int64, uint8 to "
            "uint32, float32, float64, decimal(p,s), date, timestamp, timestamptz, string, binary; "
            "nested ones go in a JSON file."
        ) from None


def _fields_from_json(document: Any, file: str) -> list[pa.Field]:
    if isinstance(document, dict) and "columns" not in document:
        document = [{"name": name, "type": kind} for name, kind in document.items()]
    elif isinstance(document, dict):
        document = document["columns"]
    if not isinstance(document, list) or not all(isinstance(c, dict) for c in document):
        raise InvalidInput(
            f'{file} must hold {{"name": "type", …}} or '
            '[{"name": …, "type": …, "nullable": …, "comment": …}, …]'
        )
    return [_field_from_json(given) for given in document]


def _field_from_json(given: dict[str, Any]) -> pa.Field:
    unknown = given.keys() - {"name", "type", "nullable", "comment"}
    name, nullable = given.get("name"), given.get("nullable", True)
    if unknown or not isinstance(name, str) or not isinstance(nullable, bool):
        raise InvalidInput(
            f"{json.dumps(given)[:80]} is not a column: name, type, nullable, comment"
        )
    comment = given.get("comment")
    metadata = {b"comment": str(comment).encode()} if comment is not None else None
    return pa.field(name, _arrow_type(name, given.get("type")), nullable, metadata)


def _json_file(path: str) -> Any:
    with _opened(path) as file:
        try:
            return json.load(file)
        except ValueError as error:
            # The text itself stays out of the message: a file of options holds secrets.
            where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
            raise InvalidInput(f"{path} is not valid JSON{where}") from None


def _opened(path: str) -> Any:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None


# --- rows --------------------------------------------------------------------------------------


def rows(path: str, kind: str | None, target: Schema) -> Any:
    """Rows from a file, or from standard input where the path is `-`, ready to append."""
    found = kind or ("jsonl" if path == "-" else _SUFFIXES.get(Path(path).suffix.lower()))
    if found is None:
        raise InvalidInput(
            f"cannot tell the format of {path} by its name; add --format with one of "
            f"{', '.join(FORMATS)}"
        )
    source = sys.stdin.buffer if path == "-" else _opened(path)
    with source:
        try:
            return _ROWS[found](source, target)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} cannot be read as {found}: {error}") from None


def _parquet(source: Any, _: Schema) -> pa.Table:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only this road needs it

    return pq.read_table(pa.py_buffer(source.read()))


def _arrow(source: Any, _: Schema) -> pa.Table:
    data = pa.py_buffer(source.read())
    is_file = bytes(memoryview(data)[:6]) == b"ARROW1"
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(data).read_all()


def _csv(source: Any, target: Schema) -> pa.Table:
    import pyarrow.csv as pa_csv  # noqa: PLC0415 - only this road needs it

    # Columns have the table's types, so `007` stays text where the column is text.
    kinds = {c.name: types.to_arrow(c.type) for c in target.columns if not c.type.is_nested}
    return pa_csv.read_csv(source, convert_options=pa_csv.ConvertOptions(column_types=kinds))


def _jsonl(source: Any, target: Schema) -> list[dict[str, Any]]:
    out = []
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError):
            raise InvalidInput(f"line {number} is not valid JSON; nothing was written") from None
        if not isinstance(row, dict):
            raise InvalidInput(f"line {number} is not a JSON object; nothing was written")
        out.append(row)
    return typed_rows(out, target)


_ROWS = {"parquet": _parquet, "arrow": _arrow, "csv": _csv, "jsonl": _jsonl}
