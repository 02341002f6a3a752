"""A reader written from SPEC.md alone: slow, small, and without a line of the library.

    python reference_reader.py TABLE [VERSION] [--user NAME]

prints every visible row of a local table as one line of JSON (conformance/README.md), in the order
of `_seq`. Anything that SPEC.md tells readers to refuse ends with exit code 1 and a line that
names the kind of error. It shows that the specification is enough, and where to begin.
"""

# ruff: noqa: D103, PLR2004, T201 - a script, whose numbers and names are those of SPEC.md
from __future__ import annotations

import base64
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

INT64_MAX = 2**63 - 1
YEAR_10000_MS = 253_402_300_800_000
NUMBER, ID = r"(?:0|[1-9][0-9]{0,18})", r"[0-9a-f]{16}"
WINDOW = re.compile(r"w(0|[1-9][0-9]{0,14})-([1-9][0-9]{0,14})")
SEGMENT_PATH = re.compile(
    rf"{WINDOW.pattern}/shard-(?:0|[1-9][0-9]{{0,5}})/"
    rf"(?:batch|compact|late)-{NUMBER}-{ID}\.parquet"
)
PAGE_PATH = re.compile(rf"_strandline/pages/{NUMBER}-{ID}\.(parquet|json\.lz4)")
SCALARS = {
    "bool": pa.bool_(),
    **{f"int{n}": getattr(pa, f"int{n}")() for n in (8, 16, 32, 64)},
    **{f"uint{n}": getattr(pa, f"uint{n}")() for n in (8, 16, 32)},
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "uint8": ("uint16", "uint32", "int16", "int32", "int64"),
    "uint16": ("uint32", "int32", "int64"),
    "uint32": ("int64",),
    "float32": ("float64",),
}
PAGE_ENCODINGS = {
    *("PLAIN", "RLE", "BIT_PACKED", "BYTE_STREAM_SPLIT"),
    *("DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"),
}
ROWS_ARE = ("dense", "offset", "stored")
PAGE_INTEGERS = ("row_count", "size_bytes", "min_seq", "max_seq", "min_ts", "max_ts", "created_at")
PAGE_COLUMNS = [
    *("path", "footer_bytes", "footer_xxh64", "schema_version", "seq_base", "ts_stored"),
    *PAGE_INTEGERS,
]


class Refused(Exception):
    """What SPEC.md tells a reader to refuse, with the kind of error."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"{kind}: {why}")
        self.kind = kind


def need(holds: object, why: str, kind: str = "corrupt") -> None:
    if not holds:
        raise Refused(kind, why)


def int64(value: Any, least: int = 0) -> int:
    """[JSON-2] A 64-bit integer in a string."""
    need(isinstance(value, str) and re.fullmatch("0|[1-9][0-9]{0,18}", value), f"{value!r}: int64")
    need(least <= int(value) <= INT64_MAX, f"{value} is out of range")
    return int(value)


# --- section 4: documents -----------------------------------------------------------------------


def read(root: Path, path: str, kind: str = "missing_file") -> bytes:
    try:
        return (root / path).read_bytes()
    except FileNotFoundError:
        raise Refused(kind, f"{path} is missing") from None


def document(data: bytes) -> dict[str, Any]:
    """[DOC-1] to [DOC-4], [DOC-6] One JSON text in one LZ4 frame of exactly one form."""
    need(23 <= len(data) <= 16 * 2**20, "size of the document")
    need(data[:5] == b"\x04\x22\x4d\x18\x6c" and data[5] in b"\x40\x50\x60\x70", "LZ4 header")
    size = int.from_bytes(data[6:14], "little")
    need(size <= 128 * 2**20, "size of the text")
    try:
        frame = lz4.frame.LZ4FrameDecompressor()
        text = frame.decompress(data, max_length=size + 1)
        need(frame.eof and not frame.unused_data and len(text) == size, "end of the LZ4 frame")
        need(sum(map(text.count, (b",", b":", b"[", b"{"))) <= 4_000_000, "number of values")
        found = json.loads(text)
    except (RuntimeError, ValueError, RecursionError) as error:
        raise Refused("corrupt", str(error)) from None
    need(isinstance(found, dict), "the document is no object")
    return dict(found)


def xxh64(data: bytes) -> str:
    return str(xxhash.xxh64_hexdigest(data))


# --- sections 6 and 12: versions ----------------------------------------------------------------


def versions(folder: Path, ending: str) -> list[int]:
    """[LAY-1] [LAY-2] The versions that the names in a folder stand for, newest first."""
    names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    digits = [name[:20] for name in names if re.fullmatch(r"[0-9]{20}" + ending, name)]
    return [INT64_MAX - int(d) for d in digits if INT64_MAX - int(d) >= 1]


OF_THE_TABLE = (
    *("schema", "next_column_id", "config", "floor_ts", "fence"),
    *("reader_features", "writer_features"),
)


def chain_of(user: str | None) -> str:
    """[LAY-1] [CAT-3] Where the manifests and markers of the table, or of one user, lie."""
    if user is None:
        return "_strandline/"
    folder = user
    if not re.fullmatch("[a-z0-9_-]{1,100}", user):
        text = base64.b32hexencode(user.encode()).decode().rstrip("=").lower()
        folder = "~" + "~/".join(text[i : i + 190] for i in range(0, len(text), 190))
    return f"_strandline/users/{xxh64(user.encode())[:2]}/{folder}/"


def joined(root: Path, own: dict[str, Any], user: str) -> dict[str, Any]:
    """[USR-1] [USR-2] A user's manifest, with what the table's newest version says for all."""
    newest = versions(root / "_strandline/manifests", r"\.json\.lz4")
    need(newest, "no manifest", "table_not_found")
    table = manifest(root, newest[0], scopes={"user_scope"})
    need("user_scope" in table["reader_features"], "a table without users")
    need(table.get("dropped_at") is None, "the table is dropped", "table_not_found")
    need(own["kind"] == "user" and own["user"] == user, "another user's manifest")
    need(own["table_uuid"] == table["table_uuid"], "another table's uuid")
    return {"files_floor": "0", **own, **{name: table[name] for name in OF_THE_TABLE}}


def manifest(
    root: Path, version: int, user: str | None = None, scopes: set[str] | None = None
) -> dict[str, Any]:
    name = f"{chain_of(user)}manifests/{INT64_MAX - version:020d}.json.lz4"
    found = document(read(root, name, "version_not_found"))
    need(found.get("format") == "strandline", "not a manifest")
    need(found.get("format_version") == 1, "format version", "unsupported")
    if user is not None:
        found, scopes = joined(root, found, user), {"user_scope"}
    features = found["reader_features"]
    known = {"keyed", "tombstones", *(scopes or ())}
    need(set(features) <= known, f"features {features}", "unsupported")
    need(int64(found["version"]) == version == int64(found["commit"]["version"]), "version")
    need((found["parent_xxh64"] is None) == (version == 1), "parent_xxh64")
    history = [int64(record["version"]) for record in found["history"]]
    need(history and history == list(range(version, version - len(history), -1)), "history")
    need(found["history"][0] == found["commit"], "history")
    need(int64(found["trim_seq"]) <= int64(found["tail"]["next_seq"]) < INT64_MAX, "tail")
    check_schema(found["schema"]["columns"], found["next_column_id"])
    config = found["config"]
    need(config["timestamping"] in ("client-prefer", "client-require", "arrival"), "timestamping")
    need(config["order"] in ("event_time", "clamp"), "order")
    times = [c["type"] for c in found["schema"]["columns"] if c["id"] == config["time_column"]]
    need(
        config["time_column"] is None or times[0] in ("int64", "timestamp", "timestamptz"),
        "time column",
    )
    check_key(found["schema"]["columns"], config.get("primary_key", []), features)
    reached = version if user is None else int64(found["root_version"], 1)
    need(int64(found["files_floor"]) <= reached, "files_floor")
    for path in found["removed_files"]:
        need(SEGMENT_PATH.fullmatch(path) or PAGE_PATH.fullmatch(path), f"path {path!r}")
    return found


def check_schema(columns: list[dict[str, Any]], next_id: int) -> None:
    """[SCH-1] to [SCH-5]."""
    for values in (
        [column["id"] for column in columns],
        [column["name"].lower() for column in columns],
        [column["physical_name"].lower() for column in columns],
    ):
        need(len(set(values)) == len(columns) > 0, "columns repeat")
    for column in columns:
        need(re.fullmatch(r"[^_\0][^\0]*", column["name"]), f"name {column['name']!r}")
        need(len(column["name"].encode()) <= 255, "a name is too long")
        physical = column["physical_name"]
        need(re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,79}", physical), f"name {physical!r}")
        need(1 <= column["id"] < next_id, "next_column_id")


def check_key(columns: list[dict[str, Any]], key: list[int], features: list[str]) -> None:
    """[KEY-1] [KEY-2] [KEY-7]."""
    need(key or "tombstones" not in features, "tombstones without a key")
    need(bool(key) == ("keyed" in features) and len(set(key)) == len(key), "primary_key")
    by_id = {column["id"]: column for column in columns}
    for column in (by_id[column_id] for column_id in key):
        kind = column["type"]
        need(isinstance(kind, str) and not kind.startswith("float"), "type of a key")
        need(column["nullable"] is False, "a key may be null")


def open_version(
    root: Path, wanted: int | None, user: str | None = None
) -> tuple[dict[str, Any], int, int]:
    """The manifest, and the floor and the trim point that count: [HEAD-1] [GC-3] [VIS-3]."""
    existing = versions(root / chain_of(user) / "manifests", r"\.json\.lz4")
    need(existing, "no manifest", "table_not_found")
    head = manifest(root, existing[0], user)
    if wanted is None or wanted == existing[0]:
        chosen = head
    else:
        need(wanted < existing[0], "not yet committed", "version_not_found")
        markers = versions(root / chain_of(user) / "gc", "")
        need(wanted >= (markers or [1])[0], "removed", "version_not_found")
        chosen = manifest(root, wanted, user)
        need(chosen["table_uuid"] == head["table_uuid"], "another table's uuid")
    floor = max(int64(m["floor_ts"]) for m in (head, chosen))
    trim = max(int64(m["trim_seq"]) for m in (head, chosen))
    return chosen, floor, trim


# --- sections 7 and 8: segments -----------------------------------------------------------------


def page(root: Path, ref: dict[str, Any], ending: str) -> bytes:
    """[PAG-1] [PAG-2] A page's bytes, verified."""
    match = PAGE_PATH.fullmatch(ref["path"])
    need(match and match[1] == ending, f"page path {ref['path']!r}")
    data = read(root, ref["path"])
    need(len(data) == int64(ref["object_bytes"], 1) and xxh64(data) == ref["xxh64"], "page bytes")
    return data


def page_rows(data: bytes) -> pa.Table:
    """[PAG-7] [PAG-13] [PAG-14] A segment page, if it cannot unfold without bound."""
    file = pq.ParquetFile(pa.BufferReader(data))
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    need(file.metadata.num_rows <= 32_768, "rows of a page")
    need(sum(group.total_byte_size for group in groups) <= 256 * 2**20, "size of a page")
    for group in groups:
        for i in range(group.num_columns):
            need(PAGE_ENCODINGS.issuperset(group.column(i).encodings), "encodings of a page")
    return file.read(use_threads=False)


def segments(root: Path, found: dict[str, Any]) -> list[dict[str, Any]]:
    """[MAN-7] Every segment of the version: inline, in pages, and in pages of folded windows."""
    windows = list(found["windows"])
    for ref in found["window_pages"]:
        folded = document(page(root, ref, "json.lz4"))
        need((folded["format"], folded["kind"]) == ("strandline", "windows"), "window page")
        need(len(folded["windows"]) == ref["entries"], "entries of a window page")
        windows += folded["windows"]
    entries = [checked(entry) for entry in found["segments"]]
    for prefix, ref in [(w["prefix"], ref) for w in windows for ref in w["pages"]]:
        start, duration = window_of(prefix)
        need(start <= int64(ref["min_ts"]) <= int64(ref["max_ts"]) < start + duration, "page times")
        rows = page_rows(page(root, ref, "parquet"))
        need(set(PAGE_COLUMNS) <= set(rows.column_names), "columns of a page")
        need(rows.num_rows == ref["entries"], "entries of a page")
        if "extra" not in rows.column_names:
            rows = rows.append_column("extra", pa.nulls(rows.num_rows, pa.string()))
        for row in rows.select([*PAGE_COLUMNS, "extra"]).to_pylist():
            row["tombstones"] = json.loads(row.pop("extra") or "{}").get("tombstones", False)
            row["rows_are"] = {None: "dense", -1: "stored"}.get(row["seq_base"], "offset")
            counted = (*PAGE_INTEGERS, "seq_base")
            for name in counted if row["rows_are"] == "offset" else PAGE_INTEGERS:
                row[name] = str(row[name])
            entries.append(checked({**row, "status": "committed"}))
    paths = [entry["path"] for entry in entries]
    need(len(set(paths)) == len(paths), "a file is listed twice")
    tail = int64(found["tail"]["next_seq"])
    need(all(entry["max_seq"] < tail for entry in entries), "rows beyond the tail")
    for entry in entries:
        said = "tombstones" in found["reader_features"]
        need(said or not entry["tombstones"], "tombstones without the feature")
    return entries


def window_of(prefix: str) -> tuple[int, int]:
    """[LAY-6] Start and duration of a window."""
    match = WINDOW.fullmatch(prefix)
    if match is None:
        raise Refused("corrupt", f"window {prefix!r}")
    start, duration = int(match[1]), int(match[2])
    need(start % duration == 0 and start < YEAR_10000_MS >= duration, f"window {prefix!r}")
    return start, duration


def checked(entry: dict[str, Any]) -> dict[str, Any]:
    """[SEG-1] to [SEG-4] An entry with integers for its int64 fields."""
    path = entry["path"]
    need(SEGMENT_PATH.fullmatch(path), f"segment path {path!r}")
    start, duration = window_of(path.split("/")[0])
    names = ("row_count", "size_bytes", "min_seq", "max_seq", "min_ts", "max_ts")
    out = {**entry, **{name: int64(entry[name], name[0] in "rs") for name in names}}
    need(entry["status"] == "committed" and entry["rows_are"] in ROWS_ARE, "entry")
    span = out["max_seq"] - out["min_seq"] + 1
    dense = entry["rows_are"] == "dense"
    need(out["row_count"] == span if dense else out["row_count"] <= span, "sequence numbers")
    need(entry["footer_bytes"] + 12 <= out["size_bytes"], "footer")
    need(start <= out["min_ts"] <= out["max_ts"] < start + duration, "timestamps")
    base = int64(entry["seq_base"]) if entry["rows_are"] == "offset" else 0
    need(entry.get("tombstones") in (None, False, True), "tombstones")
    return {
        **out,
        "window": start,
        "seq_base": base,
        "tombstones": entry.get("tombstones") is True,
    }


# --- sections 5, 9 and 10: rows -----------------------------------------------------------------


def arrow_type(kind: Any, depth: int = 0) -> pa.DataType:
    """[TYP-1] to [TYP-3] The Arrow type of a column type."""
    need(depth <= 32, "types are nested too deep")
    if isinstance(kind, str):
        match = re.fullmatch(r"decimal\(([1-9][0-9]?),(0|[1-9][0-9]?)\)", kind)
        if match and int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
            return pa.decimal128(int(match[1]), int(match[2]))
        need(kind in SCALARS, f"type {kind!r}")
        return SCALARS[kind]
    need(isinstance(kind, dict) and len(kind) == 1, f"type {kind!r}")
    ((name, inner),) = kind.items()
    if name == "list":
        return pa.list_(arrow_field("element", inner, depth))
    if name == "map":
        return pa.map_(arrow_type(inner[0], depth + 1), arrow_field("value", inner[1], depth))
    need(name == "struct" and inner, f"type {kind!r}")
    return pa.struct([arrow_field(f["name"], f, depth) for f in inner])


def arrow_field(name: str, inner: dict[str, Any], depth: int) -> pa.Field:
    return pa.field(name, arrow_type(inner["type"], depth + 1), inner.get("nullable", True))


def widens(held: pa.DataType, wanted: pa.DataType) -> bool:
    """[EVO-5] Whether values of an older file convert to the column's type of today."""
    if pa.types.is_decimal(held) and pa.types.is_decimal(wanted):
        return bool(held.scale == wanted.scale and held.precision <= wanted.precision)
    names = {kind: name for name, kind in SCALARS.items()}
    return held == wanted or names.get(wanted) in WIDER.get(names.get(held, ""), ())


def segment_rows(root: Path, found: dict[str, Any], entry: dict[str, Any]) -> pa.Table:
    """The rows of one file with the table's columns, `_seq`, `_ts` and `_window`."""
    data = read(root, entry["path"])
    need(len(data) == entry["size_bytes"], f"size of {entry['path']}")
    length = entry["footer_bytes"]
    footer = data[-8 - length : -8]
    need(data[-8:] == length.to_bytes(4, "little") + b"PAR1", "end of the file")
    need(xxh64(footer) == entry["footer_xxh64"], f"footer of {entry['path']}")
    metadata = pq.read_metadata(pa.BufferReader(footer + data[-8:]))
    need(metadata.num_rows == entry["row_count"], "number of rows")
    # Without threads: a short process sometimes aborted while Arrow's pool was being taken down.
    stored = pq.ParquetFile(
        pa.BufferReader(data), metadata=metadata, page_checksum_verification=True
    ).read(use_threads=False)
    deleted, key = entry["tombstones"], found["config"].get("primary_key", [])
    need(deleted == ("_deleted" in stored.column_names), "[KEY-8] tombstones or not")
    need(not deleted or set(stored.column("_deleted").to_pylist()) == {True}, "_deleted")
    out: dict[str, Any] = {"_deleted": pa.array([deleted] * entry["row_count"])}
    for column in found["schema"]["columns"]:
        wanted = arrow_type(column["type"])
        if column["physical_name"] in stored.column_names:
            values = stored.column(column["physical_name"])
            need(widens(values.type, wanted), f"type of {column['name']}")
            out[column["name"]] = values.cast(wanted)
        else:
            out[column["name"]] = pa.nulls(entry["row_count"], wanted)
        if not column["nullable"] and not (deleted and column["id"] not in key):
            need(out[column["name"]].null_count == 0, f"a null in {column['name']}")
    out["_seq"] = pa.array(sequence(stored, entry), pa.int64())
    out["_ts"] = pa.array(timestamps(stored, found, entry), pa.int64())
    out["_window"] = pa.array([entry["window"]] * entry["row_count"], pa.int64())
    return pa.table(out)


def sequence(stored: pa.Table, entry: dict[str, Any]) -> list[int]:
    """[ROW-1] [ROW-2] Each row's `_seq`."""
    if entry["rows_are"] == "dense":
        return list(range(entry["min_seq"], entry["max_seq"] + 1))
    name = "_seq" if entry["rows_are"] == "stored" else "_off"
    need(name in stored.column_names, f"{name} is missing")
    seqs = [entry["seq_base"] + number for number in stored.column(name).to_pylist()]
    need(entry["min_seq"] <= min(seqs) and max(seqs) <= entry["max_seq"], name)
    return seqs


def timestamps(stored: pa.Table, found: dict[str, Any], entry: dict[str, Any]) -> list[int]:
    """[ROW-3] [ROW-4] Each row's `_ts`."""
    if entry["ts_stored"]:
        need("_ts" in stored.column_names, "_ts is missing")
        return list(stored.column("_ts").to_pylist())
    (column,) = (c for c in found["schema"]["columns"] if c["id"] == found["config"]["time_column"])
    times = stored.column(column["physical_name"]).cast(pa.int64()).to_pylist()
    need(None not in times, "a row has no time")
    return times if column["type"] == "int64" else [time // 1000 for time in times]


# --- section 13, and the output of conformance/README.md ----------------------------------------


def plain(array: pa.Array) -> list[Any]:
    """Values as the conformance kit wants them: text by SPEC.md 4.4, nested as JSON."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [plain(child) for child in array.flatten()]
        rows = [
            dict(zip([f.name for f in kind], row, strict=True)) for row in zip(*parts, strict=True)
        ]
        return [row if ok.as_py() else None for row, ok in zip(rows, array.is_valid(), strict=True)]
    if pa.types.is_map(kind):
        pairs = [None if not v.is_valid else v.values.flatten() for v in array]
        return [
            None if p is None else [list(kv) for kv in zip(*map(plain, p), strict=True)]
            for p in pairs
        ]
    if pa.types.is_list(kind):
        return [None if not v.is_valid else plain(v.values) for v in array]
    if pa.types.is_temporal(kind):
        array = array.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
    return [None if v is None else text(v, kind) for v in array.to_pylist()]


def text(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return repr(value) if math.isfinite(value) else ("-" if value < 0 else "") + "Infinity"
    if pa.types.is_decimal(kind):
        sign, digits, exponent = value.as_tuple()
        shift = 10 ** (exponent + kind.scale)
        return str((-1 if sign else 1) * int("".join(map(str, digits))) * shift)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else str(int(value))


def scan(root: Path, version: int | None, user: str | None = None) -> list[dict[str, Any]]:
    """Every visible row of a version, in the order of `_seq`."""
    found, floor, trim = open_version(root, version, user)
    rows: list[dict[str, Any]] = []
    for entry in segments(root, found):
        table = segment_rows(root, found, entry).combine_chunks()
        columns = {
            name: plain(pa.concat_arrays(table.column(name).chunks)) for name in table.column_names
        }
        rows += [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    visible = [r for r in rows if int(r["_seq"]) >= trim and int(r["_ts"]) >= floor]
    kept = [row for row in winners(found, visible) if row.pop("_deleted") == "0"]
    return sorted(kept, key=lambda row: int(row["_seq"]))


def winners(found: dict[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """[KEY-3] In a keyed table, the newest row of each key, which may be a tombstone."""
    key = found["config"].get("primary_key", [])
    names = [column["name"] for column in found["schema"]["columns"] if column["id"] in key]
    if not key:
        return rows
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (int(row["_ts"]), int(row["_seq"]))):
        newest[tuple(row[name] for name in names)] = row
    return list(newest.values())


def main() -> int:
    place, *rest = sys.argv[1:]
    user = rest.pop() if rest[-2:-1] == ["--user"] else None
    numbers = [int(given) for given in rest if given != "--user"]
    try:
        rows = scan(Path(place), numbers[0] if numbers else None, user)
    except Refused as error:
        print(json.dumps({"error": error.kind, "why": str(error)}))
        return 1
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        pa.ArrowException,
    ) as error:
        print(json.dumps({"error": "corrupt", "why": repr(error)}))
        return 1
    for row in rows:
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
