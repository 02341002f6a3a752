"""Tables that readers must refuse: damaged bytes and hostile metadata, one function each."""

# ruff: noqa: D103, INP001 - functions beside the tables they write, each with its story
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from world import World, at, frame, small_limits

from strandline.tableformat import codec

if TYPE_CHECKING:
    from pathlib import Path

_EMPTY = b"[]," * 2_500_000 + b"[]]"
Damage = Callable[[World, dict[str, Any]], Any]
DAMAGES: dict[str, tuple[str, str, Damage]] = {}


def damage(error: str, shows: str) -> Callable[[Damage], Damage]:
    """Register a damage; it is given a small table and its head's manifest to spoil."""

    def register(spoil: Damage) -> Damage:
        DAMAGES[spoil.__name__] = (error, shows, spoil)
        return spoil

    return register


def _edit(name: str, error: str, shows: str, change: Callable[[dict[str, Any]], Any]) -> None:
    def spoil(world: World, document: dict[str, Any]) -> None:
        change(document)
        world.put(int(document["commit"]["version"]), document)

    spoil.__name__ = name
    damage(error, shows)(spoil)


def _segment(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document["segments"][0].update(fields)


def _file_name(document: dict[str, Any]) -> str:
    return str(document["segments"][0]["path"])


def _deep(document: dict[str, Any]) -> None:
    kind: Any = "int32"
    for _ in range(40):
        kind = {"list": {"type": kind, "nullable": True}}
    document["schema"]["columns"][1]["type"] = kind


_edit(
    "unknown_reader_feature",
    "unsupported",
    "A reader feature that version 1 does not define.",
    lambda d: d.update(reader_features=["from-the-future"]),
)
_edit(
    "newer_format",
    "unsupported",
    "Format version 2, and nothing else as we know it.",
    lambda d: d.update(format_version=2, schema="new", segments={}),
)
_edit("foreign_format", "corrupt", "Another format's name.", lambda d: d.update(format="other"))
for _name, _path in {
    "path_escapes": "w0-2592000000/shard-0/../../../secret.parquet",
    "path_absolute": "/etc/passwd",
    "path_url": "s3://bucket/w0-2592000000/shard-0/batch-1-0123456789abcdef.parquet",
    "path_percent": "w0-2592000000/shard-0/batch-1-0123456789abcdef.parquet%00",
    "path_other_window": "w7-2592000000/shard-0/batch-1-0123456789abcdef.parquet",
}.items():
    _edit(_name, "corrupt", f"A segment at {_path!r}.", _segment(path=_path))
_edit(
    "unknown_type",
    "corrupt",
    "A column type outside the closed set.",
    lambda d: d["schema"]["columns"][1].update(type="int128"),
)
_edit("deep_nesting", "corrupt", "A type nested deeper than 32 levels.", _deep)
_edit(
    "beyond_the_tail",
    "corrupt",
    "A segment with sequence numbers the table never gave.",
    lambda d: d["tail"].update(next_seq="1"),
)
_edit(
    "dense_with_gaps",
    "corrupt",
    "A dense segment with more numbers than rows.",
    _segment(row_count="2"),
)
_edit(
    "outside_the_window",
    "corrupt",
    "Timestamps outside the window of the path.",
    _segment(min_ts="0"),
)
_edit(
    "listed_twice",
    "corrupt",
    "The same file twice.",
    lambda d: d.update(segments=d["segments"] * 2),
)
_edit("huge_count", "corrupt", "A row count beyond 64 bits.", _segment(row_count="9" * 19))
_edit("number_not_text", "corrupt", "A 64-bit integer as a JSON number.", _segment(row_count=3))
_edit(
    "wrong_version_inside",
    "corrupt",
    "A manifest that says it is another version.",
    lambda d: d.update(version="7"),
)
_edit(
    "history_of_another_commit",
    "corrupt",
    "A history whose newest record is not the commit itself.",
    lambda d: d["history"][0].update(commit_id="f" * 32),
)
_edit(
    "files_floor_beyond",
    "corrupt",
    "A files floor that no file can reach.",
    lambda d: d.update(files_floor="99"),
)
_edit(
    "footer_does_not_fit",
    "corrupt",
    "A footer as long as its file.",
    lambda d: d["segments"][0].update(footer_bytes=int(d["segments"][0]["size_bytes"])),
)
_edit(
    "broken_history",
    "corrupt",
    "A history that does not begin with the commit itself.",
    lambda d: d.update(history=d["history"][1:]),
)
_edit(
    "removed_path_escapes",
    "corrupt",
    "An escaping path in `removed_files`.",
    lambda d: d.update(removed_files=["../../other/file"]),
)
_edit("unknown_status", "corrupt", "A segment that is not committed.", _segment(status="pending"))
_edit(
    "wrong_footer_hash",
    "corrupt",
    "A footer hash that is not the file's.",
    _segment(footer_xxh64="0" * 16),
)
_edit("missing_field", "corrupt", "A manifest without its tail.", lambda d: d.pop("tail"))


def _column(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document["schema"]["columns"][1].update(fields)


def _config(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: document["config"].update(fields)


_edit(
    "unknown_rows_are",
    "corrupt",
    "Sequence numbers by a rule nobody knows.",
    _segment(rows_are="sorted"),
)
_edit(
    "wrong_row_count",
    "corrupt",
    "An entry with fewer rows than its file.",
    _segment(row_count="2", max_seq="1"),
)
_edit(
    "parent_of_the_first",
    "corrupt",
    "A second version without its parent's checksum.",
    lambda d: d.update(parent_xxh64=None),
)
_edit("unknown_order", "corrupt", "An unknown word in the config.", _config(order="random"))
_edit(
    "time_column_missing",
    "corrupt",
    "A time column that the schema lacks.",
    _config(time_column=9),
)
_edit("names_differ_by_case", "corrupt", "Two columns `ts` and `TS`.", _column(name="TS"))
_edit("reserved_name", "corrupt", "A user's column named `_seq`.", _column(name="_seq"))
_edit(
    "physical_name_escapes",
    "corrupt",
    "A physical name outside its grammar.",
    _column(physical_name="../n"),
)
_edit("id_in_use", "corrupt", "`next_column_id` is in use.", lambda d: d.update(next_column_id=2))
_edit(
    "type_does_not_widen",
    "corrupt",
    "A column that is an integer in the file and text in the schema.",
    lambda d: (_column(type="string")(d), d["segments"][0].update(column_stats={})),
)
_edit(
    "no_time",
    "corrupt",
    "Rows without stored `_ts` in a table without time column.",
    _config(time_column=None),
)
_edit(
    "offset_without_off",
    "corrupt",
    "An offset file that holds no `_off`.",
    _segment(rows_are="offset", seq_base="0"),
)


def _keyed(key: list[int], **column: Any) -> Callable[[dict[str, Any]], Any]:
    """A primary key as it should be, but for what is said."""

    def change(document: dict[str, Any]) -> None:
        document.update(reader_features=["keyed"])
        document["config"].update(primary_key=key)
        _column(**{"nullable": False, **column})(document)

    return change


_edit(
    "key_without_feature",
    "corrupt",
    "A primary key that readers are not warned of.",
    lambda d: (_keyed([2])(d), d.update(reader_features=[])),
)
_edit(
    "feature_without_key",
    "corrupt",
    "The feature `keyed` in a table without a key.",
    lambda d: d.update(reader_features=["keyed"]),
)
_edit(
    "tombstones_without_feature",
    "corrupt",
    "Deleted keys that readers are not warned of.",
    lambda d: (_keyed([2])(d), _segment(tombstones=True)(d)),
)
_edit(
    "tombstones_without_key",
    "corrupt",
    "The feature `tombstones` in a table without a key.",
    lambda d: d.update(reader_features=["tombstones"]),
)
_edit(
    "tombstones_that_are_rows",
    "corrupt",
    "An entry that says tombstones of a file with rows.",
    lambda d: (
        _keyed([2])(d),
        _segment(tombstones=True)(d),
        d.update(reader_features=["keyed", "tombstones"]),
    ),
)
_edit("key_named_twice", "corrupt", "A key with the same column twice.", _keyed([2, 2]))
_edit("key_of_floats", "corrupt", "A key whose values have no bytes.", _keyed([2], type="float64"))
_edit("key_may_be_null", "corrupt", "A key that allows nulls.", _keyed([2], nullable=True))
_edit("key_of_no_column", "corrupt", "A key that the schema lacks.", _keyed([2, 9]))


@damage("corrupt", "A row without a key, in a file of a keyed table.")
def null_in_a_key(world: World, document: dict[str, Any]) -> None:
    del document
    world.open().append([{"ts": at(4), "n": None}])
    changed = world.document(world.head())
    _keyed([2])(changed)
    world.put(_version(changed), changed)


@damage("missing_file", "A segment that is listed and not there.")
def missing_segment(world: World, document: dict[str, Any]) -> None:
    (world.folder / _file_name(document)).unlink()


@damage("table_not_found", "A folder without a manifest.")
def no_manifest(world: World, document: dict[str, Any]) -> None:
    for version in range(1, int(document["version"]) + 1):
        world.manifest_file(version).write_bytes(b"")
        world.manifest_file(version).rename(world.folder / f"elsewhere-{version}")


def _version(document: dict[str, Any]) -> int:
    return int(document["version"])


def _flip(file: Path, position: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


@damage("corrupt", "One bit flipped in the compressed text of the manifest.")
def flipped_manifest_bit(world: World, document: dict[str, Any]) -> None:
    _flip(world.manifest_file(int(document["version"])), 200)


@damage("corrupt", "The content checksum switched off in the frame's flags, and a changed text.")
def checksum_switched_off(world: World, document: dict[str, Any]) -> None:
    document["tail"]["last_ts"] = "1"
    world.put(int(document["version"]), document, content_checksum=False)


@damage("corrupt", "A frame whose header announces more than 128 MiB.")
def decompression_bomb(world: World, document: dict[str, Any]) -> None:
    file = world.manifest_file(int(document["version"]))
    data = bytearray(file.read_bytes())
    data[6:14] = (2**33).to_bytes(8, "little")
    file.write_bytes(data)


@damage("corrupt", "A few kilobytes that unfold to five million empty lists.")
def too_many_values(world: World, document: dict[str, Any]) -> None:
    text = orjson.dumps({**document, "later": []}).replace(b'"later":[]', b'"later":[' + _EMPTY)
    world.manifest_file(_version(document)).write_bytes(frame(text))


@damage("corrupt", "A manifest cut in the middle.")
def truncated_manifest(world: World, document: dict[str, Any]) -> None:
    file = world.manifest_file(int(document["version"]))
    file.write_bytes(file.read_bytes()[:300])


@damage("corrupt", "Bytes behind the end of the frame.")
def bytes_behind_the_frame(world: World, document: dict[str, Any]) -> None:
    file = world.manifest_file(int(document["version"]))
    file.write_bytes(file.read_bytes() + b"\0")


@damage("corrupt", "One bit flipped in a data page: its CRC tells.")
def flipped_data_bit(world: World, document: dict[str, Any]) -> None:
    file = world.folder / _file_name(document)
    chunk = pq.read_metadata(file).row_group(0).column(1)
    _flip(file, chunk.data_page_offset + chunk.total_compressed_size - 3)


@damage("corrupt", "One bit flipped in a Parquet footer: its hash tells.")
def flipped_footer_bit(world: World, document: dict[str, Any]) -> None:
    file = world.folder / _file_name(document)
    _flip(file, file.stat().st_size - 60, 2)


@damage("corrupt", "A segment cut short.")
def truncated_segment(world: World, document: dict[str, Any]) -> None:
    file = world.folder / _file_name(document)
    file.write_bytes(file.read_bytes()[:-20])


def _paged(world: World) -> tuple[dict[str, Any], Path]:
    """The same table with its segments in a page, and that page."""
    table = world.open()
    with small_limits():
        for i in range(3):
            table.append([{"ts": at(i), "n": i}])
    document = world.document(world.head())
    return document, world.folder / document["windows"][0]["pages"][0]["path"]


@damage("missing_file", "A segment page that is listed and not there.")
def missing_page(world: World, document: dict[str, Any]) -> None:
    del document
    _paged(world)[1].unlink()


@damage("corrupt", "One bit flipped in a segment page: its checksum tells.")
def flipped_page_bit(world: World, document: dict[str, Any]) -> None:
    del document
    file = _paged(world)[1]
    _flip(file, file.stat().st_size // 3)


@damage("corrupt", "A page reference whose path leaves the table.")
def page_path_escapes(world: World, document: dict[str, Any]) -> None:
    document, _ = _paged(world)
    document["windows"][0]["pages"][0]["path"] = "_strandline/pages/../../../x.parquet"
    world.put(_version(document), document)


def _replace_page(world: World, document: dict[str, Any], file: Path, data: bytes) -> None:
    """Other bytes for a page, with a reference that fits them."""
    file.write_bytes(data)
    ref = document["windows"][0]["pages"][0]
    ref["object_bytes"], ref["xxh64"] = str(len(data)), codec.checksum(data)
    world.put(_version(document), document)


@damage("corrupt", "A page whose paths stand in a dictionary.")
def page_with_dictionary(world: World, document: dict[str, Any]) -> None:
    document, file = _paged(world)
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(file), sink, use_dictionary=["path"], store_schema=False)
    _replace_page(world, document, file, bytes(sink.getvalue()))


@damage("corrupt", "Rows in a page beyond the table's tail; everything else about them is right.")
def page_beyond_the_tail(world: World, document: dict[str, Any]) -> None:
    document, file = _paged(world)
    rows = pq.read_table(file)
    for name in ("min_seq", "max_seq"):
        moved = pa.array([seq + 10**6 for seq in rows.column(name).to_pylist()], pa.int64())
        rows = rows.set_column(rows.column_names.index(name), name, moved)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_dictionary=False, store_schema=False)
    _replace_page(world, document, file, bytes(sink.getvalue()))


@damage("corrupt", "An older version that belongs to another table.")
def foreign_uuid(world: World, document: dict[str, Any]) -> None:
    del document
    older = {**world.document(2), "table_uuid": "f" * 32}
    world.put(2, older)


@damage("corrupt", "A page reference with another number of entries than the page has rows.")
def page_with_other_count(world: World, document: dict[str, Any]) -> None:
    document, _ = _paged(world)
    document["windows"][0]["pages"][0]["entries"] += 1
    world.put(_version(document), document)


@damage("corrupt", "A page reference with timestamps outside its window.")
def page_outside_its_window(world: World, document: dict[str, Any]) -> None:
    document, _ = _paged(world)
    document["windows"][0]["pages"][0]["min_ts"] = "0"
    world.put(_version(document), document)
