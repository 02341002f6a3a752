"""Metadata made by an attacker: valid frames and checksums around values that lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline import api
from strandline.catalog.chain import Chain
from strandline.tableformat import codec, manifest, paths, types
from strandline.tableformat.errors import (
    CorruptTable,
    StrandlineError,
    UnsupportedFormat,
    VersionNotFound,
)
from strandline.tableformat.pages import FIXED, table_bytes
from tests.corruption.small_table import (
    Raw,
    fresh,
    head,
    head_document,
    head_path,
    metadata_paths,
    objects,
    only_strandline_errors,
    read_all,
    right_rows,
    same_rows,
    with_document,
)

if TYPE_CHECKING:
    from strandline.tableformat.stores.memory import MemoryStorage

ESCAPES = [
    "../x",
    "/etc/passwd",
    "//etc/passwd",
    "s3://bucket/key",
    "file:///etc/passwd",
    "w0-60000/shard-0/../../../x.parquet",
    "w0-60000/shard-0/./batch-1-0123456789abcdef.parquet",
    "w0-60000//shard-0/batch-1-0123456789abcdef.parquet",
    "w0-60000/shard-0/batch-1-0123456789abcdef.parquet/",
    "/w0-60000/shard-0/batch-1-0123456789abcdef.parquet",
    "w0-60000%2Fshard-0/batch-1-0123456789abcdef.parquet",
    "%2e%2e/x",
    "..%2fx",
    "w0-60000\\shard-0\\batch-1-0123456789abcdef.parquet",
    "w0-60000/shard-0/batch-1-0123456789abcdef.parquet\0",
    "w0-60000/shard-0/batch-1-0123456789abcdef.parquet\n",
    "W0-60000/shard-0/batch-1-0123456789abcdef.parquet",
    "w00-60000/shard-0/batch-1-0123456789abcdef.parquet",
    "w0-60000/shard-00/batch-1-0123456789abcdef.parquet",
    "w0-60000/shard-0/batch-01-0123456789abcdef.parquet",
    "w0-60000/shard-0/batch-1-0123456789ABCDEF.parquet",
    "w\u0660-60000/shard-0/batch-1-0123456789abcdef.parquet",
    "_strandline/manifests/09223372036854775806.json.lz4",
    "~/x",
    "",
    ".",
]


class Watched:
    """Records every path that a storage is asked for."""

    def __init__(self, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        right = storage._key  # noqa: SLF001 - where every path passes

        def key(path: str) -> str:
            self.asked.append(path)
            return right(path)

        monkeypatch.setattr(storage, "_key", key)


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("where", ["segment", "segment_page", "window_page", "position_page"])
def test_a_path_that_escapes_is_refused_before_it_is_used(
    where: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[X4] No string from metadata reaches the store unless it fits the grammar."""
    document = head_document()
    place = {
        "segment": document["segments"][0],
        "segment_page": document["windows"][0]["pages"][0],
        "window_page": document["window_pages"][0],
        "position_page": document["position_pages"][0],
    }[where]
    place["path"] = path
    storage = with_document(document)
    watched = Watched(storage, monkeypatch)
    with pytest.raises(CorruptTable, match=r"grammar|window prefix"):
        read_all(storage)
    assert path not in watched.asked


@pytest.mark.parametrize("path", ESCAPES)
def test_removed_files_are_paths_of_this_table(path: str) -> None:
    """[X4] Vacuum deletes what this list names."""
    document = head_document()
    document["removed_files"] = [path]
    with pytest.raises(CorruptTable):
        read_all(with_document(document))


@pytest.mark.parametrize("prefix", ["../..", "w0-0", "w1-60000", "w0-60000/..", "w-1-60000", "x"])
def test_a_window_that_escapes_is_refused(prefix: str) -> None:
    """[X4] A window's prefix is deleted as a whole one day."""
    document = head_document()
    document["windows"][0]["prefix"] = prefix
    with pytest.raises(CorruptTable):
        read_all(with_document(document))


# --- identity and versions ---------------------------------------------------------------------


def test_a_manifest_under_another_versions_name_is_refused() -> None:
    """[X4] The name and the document must agree."""
    storage = fresh()
    later = paths.manifest_path(head().version + 1)
    storage.put_if_absent(later, objects()[head_path()])
    with pytest.raises(CorruptTable, match="says it is"):
        read_all(storage)


def test_a_damaged_manifest_is_named_with_what_can_be_done() -> None:
    """[X4] Which object it is, what state things are in, and what helps."""
    storage = fresh()
    later = paths.manifest_path(head().version + 1)
    storage.put_if_absent(later, objects()[head_path()][:100])

    with pytest.raises(CorruptTable) as caught:
        read_all(storage)

    assert str(caught.value).startswith(
        f"manifest {head().version + 1} of {storage.url} is damaged"
    )
    assert str(caught.value).endswith(
        f". Nothing was read or changed. Restore {later} of {storage.url} from a copy."
    )


def test_a_version_of_another_table_is_refused() -> None:
    """[X4] [C2] A handle that knows its table never follows into another one."""
    storage = fresh()
    table = api.open_in(storage)
    document = head_document()
    version = head().version + 1
    document["table_uuid"] = "0" * 32
    document["version"] = document["commit"]["version"] = str(version)
    document["history"] = [document["commit"]]
    data = codec.encode_document(orjson.dumps(document))
    storage.put_if_absent(paths.manifest_path(version), data)
    with pytest.raises(CorruptTable, match="another table"):
        table.append([{"at": 1}])
    for use in (table.refresh, table.scan, table.tail, table.history):
        with pytest.raises(CorruptTable, match="another table"):
            use()
    with pytest.raises((CorruptTable, VersionNotFound)):
        api.open_in(storage, version=head().version).scan().to_arrow()
    assert storage.list(paths.MANIFESTS) == sorted(
        [paths.manifest_path(version).rpartition("/")[2], head_path().rpartition("/")[2]]
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format_version": 2}, "version 2"),
        ({"format_version": 2, "segments": None, "schema": 7}, "version 2"),
        ({"reader_features": ["time-crystals"]}, "time-crystals"),
        ({"reader_features": ["b", "a"], "tail": None}, "a, b"),
    ],
)
def test_an_unknown_format_is_refused_by_name(change: dict[str, Any], match: str) -> None:
    """[X4] This comes before every other check: a newer format may have changed all else."""
    with pytest.raises(UnsupportedFormat, match=match):
        read_all(with_document(head_document() | change))


def test_an_unknown_writer_feature_lets_read_and_refuses_to_write() -> None:
    """[X4] Readable, but nothing is changed."""
    storage = with_document(head_document() | {"writer_features": ["time-crystals"]})
    before = dict(storage._shelf.objects)  # noqa: SLF001 - nothing may change, anywhere
    table = api.open_in(storage)
    assert same_rows(read_all(storage))
    row = [{"at": 1_799_990_000_000}]
    for write in (
        lambda: table.append(row),
        lambda: table.append(row, writer_id="w", batch=1),
        lambda: table.overwrite(row),
        lambda: table.delete(filter="true"),
        table.compact,
        lambda: table.writer(wal=False),
        table.expire,
        lambda: table.vacuum(dry_run=False),
        lambda: table.purge(dry_run=False),
        lambda: table.remember("alias", {"columns": ["at"]}),
        lambda: table.evolve(add={"c": "int8"}),
        lambda: table.fence("token"),
    ):
        with pytest.raises(UnsupportedFormat, match="time-crystals"):
            write()
    assert dict(storage._shelf.objects) == before  # noqa: SLF001


def test_optional_fields_of_a_newer_writer_are_kept() -> None:
    """An older writer in between does not undo what a newer one noted."""
    document = head_document()
    note = {"of": ["a", 1, None, {"deep": True}]}
    document["x_top"] = note
    document["config"]["x_config"] = note
    document["segments"][0]["x_segment"] = note
    storage = with_document(document)
    assert same_rows(read_all(storage))
    table = api.open_in(storage)
    table.append([{"at": 1_799_990_000_000, "n": 1}])
    data = storage.read(paths.manifest_path(head().version + 1))
    kept = codec.decode_document(data, "manifest")
    assert kept["x_top"] == note
    assert kept["config"]["x_config"] == note
    assert kept["segments"][0]["x_segment"] == note


# --- numbers and counts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("segments", 0, "row_count"), "9223372036854775807"),
        (("segments", 0, "row_count"), "-1"),
        (("segments", 0, "row_count"), "00"),
        (("segments", 0, "row_count"), "1e3"),
        (("segments", 0, "row_count"), " 1"),
        (("segments", 0, "max_seq"), "9223372036854775807"),
        (("segments", 0, "size_bytes"), "9223372036854775807"),
        (("segments", 0, "size_bytes"), "1"),
        (("segments", 0, "footer_bytes"), 2**31 - 1),
        (("segments", 0, "footer_bytes"), 2**31),
        (("segments", 0, "min_ts"), "9223372036854775807"),
        (("windows", 0, "pages", 0, "object_bytes"), "4611686018427387904"),
        (("windows", 0, "pages", 0, "entries"), 2**31 - 1),
        (("window_pages", 0, "object_bytes"), "4611686018427387904"),
        (("window_pages", 0, "entries"), 2**31 - 1),
        (("tail", "next_seq"), "9223372036854775808"),
        (("tail", "next_seq"), "0"),
        (("next_column_id",), 1),
        (("schema", "columns", 0, "id"), 2**31),
        (("trim_seq",), "9223372036854775807"),
    ],
)
def test_impossible_numbers_are_refused(place: tuple[Any, ...], value: Any) -> None:
    """[X4] Negative, overflowing, misspelt and contradicting numbers."""
    document = head_document()
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    assert inner[place[-1]] != value
    inner[place[-1]] = value
    with pytest.raises(CorruptTable):
        read_all(with_document(document))


def test_a_file_listed_twice_is_refused() -> None:
    """[X4] Its rows would be counted twice."""
    for name in ("segments", "window_pages"):
        document = head_document()
        document[name].append(document[name][0])
        with pytest.raises(CorruptTable, match="twice"):
            read_all(with_document(document))
    document = head_document()
    document["windows"][0]["pages"] *= 2
    with pytest.raises(CorruptTable, match="twice"):
        read_all(with_document(document))


@pytest.mark.parametrize("raw", ["NaN", "Infinity", "-Infinity", "1e400", "0x10", "01", "'1'"])
def test_text_that_is_not_json_is_refused(raw: str) -> None:
    """[X4] As a number in any field, also in one that nobody knows."""
    for name in ("format_version", "next_column_id", "unknown"):
        storage = with_document(head_document() | {name: Raw(raw)})
        if raw == "1e400" and name == "unknown":
            with only_strandline_errors(raw):
                read_all(storage)
        else:
            with pytest.raises(CorruptTable):
                read_all(storage)


# --- nesting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [100, 300, 1_000, 100_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
@pytest.mark.parametrize(
    "place", ["unknown", "segments", "schema", "fence", "removed_files", "positions"]
)
def test_deep_nesting_ends_in_a_clear_answer(place: str, brackets: str, levels: int) -> None:
    """[X4] No stack is exhausted, by reading or by writing the unknown field again."""
    opening = "[" if brackets == "[]" else '{"a":'
    text = opening * levels + brackets + brackets[1] * levels
    storage = with_document(head_document() | {place: Raw(text)})
    try:
        rows = read_all(storage)
    except CorruptTable:
        return
    assert place == "unknown"
    assert same_rows(rows)
    with only_strandline_errors("append"):
        api.open_in(storage).append([{"at": 1_799_990_000_000, "n": 1}])


@pytest.mark.parametrize("levels", [types.MAX_NESTING + 2, 120, 400, 100_000])
@pytest.mark.parametrize("form", ["list", "struct", "map"])
def test_deep_types_are_refused(form: str, levels: int) -> None:
    """[X4] A column type may be nested 32 levels deep."""
    opening, closing = {
        "list": ('{"list":{"nullable":true,"type":', "}}"),
        "struct": ('{"struct":[{"name":"a","nullable":true,"type":', "}]}"),
        "map": ('{"map":["int8",{"nullable":true,"type":', "}]}"),
    }[form]
    document = head_document()
    document["schema"]["columns"][1]["type"] = Raw(opening * levels + '"int8"' + closing * levels)
    with pytest.raises(CorruptTable):
        read_all(with_document(document))


# --- segment pages -----------------------------------------------------------------------------


def with_segment_page(page: pa.Table, *, entries: int | None = None) -> MemoryStorage:
    """The table with another segment page, listed by the manifest itself with a right checksum."""
    document = head_document()
    ref = document["windows"][0]["pages"][0]
    data = table_bytes(page)
    ref["object_bytes"], ref["xxh64"] = str(len(data)), codec.checksum(data)
    ref["entries"] = page.num_rows if entries is None else entries
    manifest_bytes = codec.encode_document(orjson.dumps(document))
    return fresh({ref["path"]: data, head_path(): manifest_bytes})


def segment_page() -> pa.Table:
    """The segment page that the manifest lists."""
    path = head_document()["windows"][0]["pages"][0]["path"]
    return pq.read_table(pa.BufferReader(objects()[path]))


def use_page(storage: MemoryStorage) -> None:
    """Read the table through its pages, with and without pruning."""
    read_all(storage)
    table = api.open_in(storage)
    table.scan(filter="n >= 0 AND t >= '' AND x < 1e9", start_seq=1).to_arrow()


def test_the_page_that_is_replaced_is_read() -> None:
    """Otherwise the tests below would prove nothing."""
    assert same_rows(read_all(with_segment_page(segment_page())))
    with pytest.raises(CorruptTable):
        read_all(with_segment_page(segment_page(), entries=1))


@pytest.mark.parametrize("name", FIXED.names)
def test_wrong_columns_of_a_segment_page_are_refused(name: str) -> None:
    """[X4] Missing, of another type, null, negative, or far too large."""
    page = segment_page()
    at, kind, rows = page.schema.get_field_index(name), page.schema.field(name).type, page.num_rows
    replacements = [
        pa.nulls(rows, kind),
        pa.array(["x"] * rows),
        pa.array([b"\xff"] * rows),
        pa.array([0.5] * rows),
        pa.array([[1]] * rows),
        pa.array([True] * rows) if kind != pa.bool_() else pa.array([1] * rows),
    ]
    if pa.types.is_integer(kind):
        largest = 2 ** (kind.bit_width - 1) - 1
        replacements += [pa.array([value] * rows, kind) for value in (-1, -largest - 1, largest)]
    harmless = 0
    with pytest.raises(CorruptTable):
        use_page(with_segment_page(page.drop_columns([name])))
    for replacement in replacements:
        storage = with_segment_page(page.set_column(at, name, replacement))
        try:
            use_page(storage)
        except StrandlineError:
            continue
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        assert same_rows(read_all(storage)), f"{name} as {replacement.type}"
        harmless += 1
    assert harmless <= 1 + (name in ("schema_version", "created_at", "seq_base"))


def test_wrong_stats_of_a_segment_page_are_refused_or_harmless() -> None:
    """[X4] A stats column of another type, or text that is not UTF-8."""
    page = segment_page()
    for name in [name for name in page.schema.names if name not in FIXED.names]:
        at, rows = page.schema.get_field_index(name), page.num_rows
        bad_text = pa.array([b"\xff\xfe"] * rows).view(pa.string())
        for replacement in (
            pa.array([b"\xff"] * rows),
            bad_text,
            pa.array([[1]] * rows),
            pa.nulls(rows, page.schema.field(name).type),
        ):
            with only_strandline_errors(f"{name} as {replacement.type}"):
                use_page(with_segment_page(page.set_column(at, name, replacement)))
        with only_strandline_errors(f"without {name}"):
            use_page(with_segment_page(page.drop_columns([name])))


def test_paths_in_a_segment_page_follow_the_grammar() -> None:
    """[X4] The same rule as in the manifest."""
    page = segment_page()
    for path in ESCAPES:
        paths_column = pa.array([path] * page.num_rows)
        with pytest.raises(CorruptTable, match=r"grammar|window prefix"):
            read_all(with_segment_page(page.set_column(0, "path", paths_column)))
    not_text = pa.array([b"w\xff"] * page.num_rows).view(pa.string())
    with pytest.raises(CorruptTable):
        read_all(with_segment_page(page.set_column(0, "path", not_text)))


def test_a_page_that_is_no_page_is_refused() -> None:
    """[X4] Any bytes, with a reference that fits them."""
    for data in (b"x", b"PAR1PAR1", objects()[head_path()], b"PAR1" + b"\xff" * 100 + b"PAR1"):
        document = head_document()
        for ref in (document["windows"][0]["pages"][0], document["window_pages"][0]):
            ref["object_bytes"], ref["xxh64"] = str(len(data)), codec.checksum(data)
            changed = {ref["path"]: data}
            changed[head_path()] = codec.encode_document(orjson.dumps(document))
            with pytest.raises(CorruptTable):
                read_all(fresh(changed))


def test_a_window_page_and_a_position_page_are_not_each_other() -> None:
    """[X4] Both are JSON in LZ4; each says what it is."""
    document = head_document()
    listed = metadata_paths()
    data = objects()[listed["position_page"]]
    (ref,) = document["window_pages"]
    ref["object_bytes"], ref["xxh64"] = str(len(data)), codec.checksum(data)
    changed = {ref["path"]: data, head_path(): codec.encode_document(orjson.dumps(document))}
    with pytest.raises(CorruptTable, match="not a page of windows"):
        read_all(fresh(changed))


def test_the_document_these_tests_change_is_the_real_one() -> None:
    """Encoding the undamaged document again gives the right rows."""
    assert same_rows(read_all(with_document(head_document())))
    assert right_rows().num_rows == 21
    assert Chain(fresh()).find_head().manifest == head()
    assert manifest.FORMAT_VERSION == 1
