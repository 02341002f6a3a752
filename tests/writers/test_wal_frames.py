"""A log gives back the rows it was given, a shorter run of them, or an error: never other rows."""

from __future__ import annotations

import math
import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given

from strandline.tableformat.arrow_messages import pack_message
from strandline.tableformat.errors import DamagedLog
from strandline.tableformat.schema import Schema, schema_from
from strandline.writers.ingest import to_arrow
from strandline.writers.log import LoggedFile, read_log
from strandline.writers.wal_frames import (
    ARROW_BATCH,
    JSON_ROWS,
    MAGIC,
    MARKER,
    LogHeader,
    Record,
    frame,
    json_payload,
    own_rows,
    read_frames,
    read_header,
)
from tests.writers.test_ingest_properties import tables


def arrow_payload(rows: pa.Table) -> bytes:
    """Rows as a log holds a batch of them."""
    return pack_message(own_rows(rows)[1])


PLAIN = schema_from(
    {
        "flag": "bool",
        "tiny": "int8",
        "big": "int64",
        "share": "float64",
        "text": "string",
        "day": "date",
        "local": "timestamp",
        "at": "timestamptz",
    }
)
"""The types that a single row may be logged with as JSON."""
SMALL = schema_from({"n": "int64", "text": "string"})
NESTED = pa.schema(
    [
        pa.field("unsigned", pa.uint32()),
        pa.field("single", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("price", pa.decimal128(38, 10)),
        pa.field("raw", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("spot", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.int8())])),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


def header(schema: Schema = SMALL, first: int = 1, **changed: Any) -> LogHeader:
    """The beginning of a log file."""
    given: dict[str, Any] = {
        "table_uuid": "a" * 32,
        "writer_id": "w",
        "incarnation": "b" * 32,
        "first_record": first,
        "schema": schema,
    }
    return LogHeader(**{**given, **changed})


def json_record(number: int, *values: Any) -> bytes:
    """One row as a producer's single rows are logged."""
    return frame(number, 1_000 + number, JSON_ROWS, json_payload([values]))


def arrow_record(number: int, rows: pa.Table) -> bytes:
    """A batch as it is logged."""
    return frame(number, 1_000 + number, ARROW_BATCH, arrow_payload(rows))


def small_rows(*numbers: int) -> pa.Table:
    """Rows of two columns."""
    return pa.table(
        {"n": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]},
        schema=SMALL.arrow,
    )


def only_record(data: bytes, schema: Schema) -> pa.Table:
    """The rows of a file with one record."""
    (file,) = read_log([("a-1.wal", header(schema).encode() + data)])
    (record,) = file.records
    return record.rows(file.header.schema)


def exactly(table: pa.Table) -> Any:
    """Something that differs wherever two tables do: also NaN, the sign of zero, and types."""
    return table.schema, [repr(row) for row in table.to_pylist()]


# --- round trips ------------------------------------------------------------------------------

EXTREME_ROWS: list[tuple[Any, ...]] = [
    (
        True,
        127,
        2**63 - 1,
        -0.0,
        "",
        date(1, 1, 1),
        datetime(1970, 1, 1),  # noqa: DTZ001 - a timestamp without a zone
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ),
    (
        False,
        -128,
        -(2**63),
        1.7976931348623157e308,
        "ä\0\n\U0001f30a",
        date(9999, 12, 31),
        None,
        None,
    ),
    (None, None, None, 5e-324, None, None, None, datetime(2024, 2, 29, 1, 2, 3, 4, UTC)),
    (None, 0, 0, 0.1 + 0.2, '"quoted" \\', date(1969, 12, 31), None, None),
]


@pytest.mark.parametrize("row", EXTREME_ROWS, ids=["highest", "lowest", "nulls", "odd"])
def test_json_rows_come_back_as_they_were(row: tuple[Any, ...]) -> None:
    """[E2] Extremes, the sign of zero, nulls, empty text and times keep their exact values."""
    rows = [dict(zip(PLAIN.arrow.names, row, strict=True))]

    assert exactly(only_record(json_record(1, *row), PLAIN)) == exactly(to_arrow(rows, PLAIN))


def test_arrow_frames_keep_what_json_cannot_say() -> None:
    """[E2] NaN, infinities, decimals, bytes and nested values, in a batch cut out of a larger."""
    schema = schema_from(NESTED)
    rows = [
        {
            "unsigned": 2**32 - 1,
            "single": math.nan,
            "double": -math.inf,
            "price": Decimal("-1234567890123456789012345678.0123456789"),
            "raw": b"\x00\xff" + MARKER,
            "tags": ["", None, "x"],
            "spot": {"x": math.nan, "y": -128},
            "counts": [("a", None), ("", 2**63 - 1)],
        },
        dict.fromkeys(NESTED.names),
        {"double": -0.0, "tags": [], "counts": [], "spot": {"x": None, "y": None}},
    ]
    table = pa.concat_tables([to_arrow(rows, schema)] * 3).slice(2, 5)

    assert exactly(only_record(arrow_record(1, table), schema)) == exactly(table)


@given(tables())
def test_every_type_survives_an_arrow_frame(drawn: tuple[Schema, list[dict[str, Any]]]) -> None:
    """[E2] [E1] Random types and values, nested ones included."""
    schema, rows = drawn
    table = to_arrow(rows or [{}], schema)

    assert exactly(only_record(arrow_record(1, table), schema)) == exactly(table)


def test_headers_come_back_as_they_were() -> None:
    """[E2] Whose log it is, from which record on, and under which columns."""
    given_header = header(schema_from(NESTED), 2**40, writer_id="ä/#\n")

    read, start = read_header(given_header.encode(), "a.wal") or pytest.fail("no header")

    assert (read, start) == (given_header, len(given_header.encode()))


# --- damage -----------------------------------------------------------------------------------


def log_files() -> list[tuple[str, bytes]]:
    """Three files: JSON and Arrow records 1 to 3, then 4 to 5 under other columns, then 6."""
    wider = schema_from({"n": "int64", "text": "string", "extra": "float64"})
    first = header().encode() + json_record(1, 10, "one") + arrow_record(2, small_rows(20, 21))
    second = header(wider, 4).encode() + json_record(4, 40, "four", 0.5)
    return [
        ("b-00000001.wal", first + json_record(3, 30, "three")),
        ("b-00000002.wal", second + json_record(5, 50, None, None)),
        ("b-00000003.wal", header(wider, 6).encode() + json_record(6, 60, "six", 1.5)),
    ]


def contents(files: list[LoggedFile]) -> list[tuple[int, int, str]]:
    """Number, time and rows of every record, so that any difference shows."""
    return [
        (record.number, record.arrived_ms, repr(record.rows(file.header.schema).to_pylist()))
        for file in files
        for record in file.records
    ]


WHOLE = contents(read_log(log_files()))


def check_prefix_or_error(files: list[tuple[str, bytes]]) -> int | None:
    """How many records were read; None for an error. Anything else fails."""
    try:
        found = contents(read_log(files))
    except DamagedLog:
        return None
    # A file that lost its header looks like one that was never written. Recovery compares the
    # first number with the table's position, and refuses a gap there.
    start = 0 if not found else found[0][0] - 1
    assert found == WHOLE[start : start + len(found)]
    return start + len(found) if found else 0


def test_the_sample_log_is_whole() -> None:
    """The tests below stand on this."""
    assert [number for number, _, _ in WHOLE] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_log_cut_at_any_byte_gives_a_prefix_or_an_error(which: int) -> None:
    """[E2] [X5] Cut anywhere: the records before, or `DamagedLog` if later ones would be lost."""
    files = log_files()
    name, data = files[which]
    for cut in range(len(data)):
        files[which] = (name, data[:cut])
        result = check_prefix_or_error(files)
        is_last = which == len(files) - 1
        # Once the header is gone too, the file looks like one that never held a record.
        header_is_there = read_header(data[:cut], name) is not None
        if not is_last and (header_is_there or which > 0):
            assert result is None, f"cut at {cut}"
        if is_last:
            assert result == 5, f"cut at {cut}"


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_flipped_byte_gives_a_prefix_or_an_error(which: int) -> None:
    """[E2] [X5] Every byte inverted, and single bits of it: no wrong row is ever read."""
    files = log_files()
    name, data = files[which]
    chance = random.Random(which)
    for place in range(len(data)):
        for mask in (0xFF, 1 << chance.randrange(8)):
            damaged = bytearray(data)
            damaged[place] ^= mask
            files[which] = (name, bytes(damaged))
            result = check_prefix_or_error(files)
            if which < len(files) - 1:
                assert result is None, f"byte {place} ^ {mask:#x}"


def test_all_files_cut_off_at_one_time_give_a_prefix() -> None:
    """[E2] [E15] A crash leaves the beginning of what was written: never an error."""
    files = log_files()
    done = 0
    for which, (name, data) in enumerate(files):
        for cut in range(len(data)):
            found = contents(read_log([*files[:which], (name, data[:cut])]))
            assert found == WHOLE[: len(found)]
            assert len(found) >= done
        done = len(contents(read_log(files[: which + 1])))


def test_zeros_behind_the_last_record_are_a_torn_tail() -> None:
    """[E2] After a power cut a file may have its length and not its bytes."""
    data = header().encode() + json_record(1, 10, "one")
    torn = data + bytes(len(json_record(2, 20, "two")))

    records, end = read_frames(torn, len(header().encode()), 1, "a.wal")

    assert [record.number for record in records] == [1]
    assert end == len(data)


def test_a_damaged_middle_is_an_error_that_names_the_place() -> None:
    """[E2] Cutting there would lose records that were acknowledged."""
    start = len(header().encode())
    one, two, three = (json_record(n, n, "text") for n in (1, 2, 3))
    data = bytearray(header().encode() + one + two + three)
    data[start + len(one) + len(two) // 2] ^= 0x10

    with pytest.raises(DamagedLog, match=rf"record 2 is damaged at byte {start + len(one)}.* 3 "):
        read_log([("a.wal", bytes(data))])


def test_a_record_that_is_missing_is_an_error() -> None:
    """[E2] Sound frames in the wrong order are not what a writer leaves."""
    for numbers in ((1, 3), (2, 1), (1, 1), (2,)):
        data = header().encode() + b"".join(json_record(n, n, "") for n in numbers)
        with pytest.raises(DamagedLog, match="stands in its place"):
            read_log([("a.wal", data)])


def test_a_number_that_the_next_file_repeats_counts_there() -> None:
    """[E2] The first try was reported as failed, so the caller's second try is the one."""
    files = [
        ("b-1.wal", header().encode() + json_record(1, 1, "kept") + json_record(2, 2, "failed")),
        ("b-2.wal", header(first=2).encode() + json_record(2, 2, "again")),
    ]

    found = contents(read_log(files))

    assert [(number, "again" in rows) for number, _, rows in found] == [(1, False), (2, True)]


def test_files_that_do_not_follow_each_other_are_an_error() -> None:
    """[E2] A gap between files, or one that begins before its predecessor."""
    for first in (3, 4, 10**12):
        files = [
            ("b-1.wal", header(first=2).encode() + json_record(2, 2, "")[:-1]),
            ("b-2.wal", header(first=first).encode() + json_record(first, 1, "")),
        ]
        with pytest.raises(DamagedLog, match="begins with record"):
            read_log(files)
    with pytest.raises(DamagedLog, match="begins with record 1"):
        read_log([("b-1.wal", header(first=2).encode()), ("b-2.wal", header().encode())])


# --- hostile bytes ----------------------------------------------------------------------------


def sealed(text: bytes) -> bytes:
    """A header with this text and a right checksum."""
    return struct.pack("<8sIQ", MAGIC, len(text), xxhash.xxh64_intdigest(text)) + text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"table_uuid": 1}',
        orjson.dumps({"table_uuid": "", "writer_id": "", "incarnation": "", "first_record": "1"}),
        orjson.dumps(
            {
                "table_uuid": "a",
                "writer_id": "w",
                "incarnation": "b",
                "first_record": "0",
                "schema": {},
            }
        ),
        orjson.dumps(
            {
                "table_uuid": "a",
                "writer_id": "w",
                "incarnation": "b",
                "first_record": "1",
                "schema": {"id": 1, "columns": [{"id": 1, "name": "a", "type": "no such"}]},
            }
        ),
        b"\xff\xfe",
    ],
)
def test_a_header_with_a_right_checksum_and_wrong_content_is_an_error(text: bytes) -> None:
    """[E2] Nothing but `DamagedLog` comes out of foreign bytes."""
    with pytest.raises(DamagedLog):
        read_log([("a.wal", sealed(text) + json_record(1, 1, ""))])


def test_lengths_that_lie_reserve_no_memory() -> None:
    """[E2] A frame or header may claim 4 GiB; the bytes that are there decide."""
    lies = struct.pack("<8sIQ", MAGIC, 2**32 - 1, 0)
    assert read_log([("a.wal", lies)]) == []
    lying_frame = struct.pack("<4sIQ", MARKER, 2**32 - 1, 0)
    (file,) = read_log([("a.wal", header().encode() + lying_frame)])
    assert file.records == []
    short_frame = struct.pack("<4sIQ", MARKER, 0, xxhash.xxh64_intdigest(b""))
    (file,) = read_log([("a.wal", header().encode() + short_frame)])
    assert file.records == []


@pytest.mark.parametrize(
    "record",
    [
        Record(1, 0, JSON_ROWS, b"{"),
        Record(1, 0, JSON_ROWS, b"5"),
        Record(1, 0, JSON_ROWS, b"[]"),
        Record(1, 0, JSON_ROWS, b"[[1]]"),
        Record(1, 0, JSON_ROWS, b'[["x", "y"]]'),
        Record(1, 0, JSON_ROWS, b"[[1, null], [2]]"),
        Record(1, 0, JSON_ROWS, b'[[123456789012345678901234567890, ""]]'),
        Record(1, 0, ARROW_BATCH, b""),
        Record(1, 0, ARROW_BATCH, b"no lz4 frame"),
        Record(1, 0, ARROW_BATCH, arrow_payload(pa.table({"other": [1.0]}))),
        Record(1, 0, ARROW_BATCH, arrow_payload(small_rows(1))[:-9]),
        Record(1, 0, 77, b"\x00"),
    ],
    ids=str,
)
def test_a_record_without_rows_of_its_schema_is_an_error(record: Record) -> None:
    """[E2] A right checksum proves that bytes are unchanged, not that they make sense."""
    with pytest.raises(DamagedLog, match="record 1"):
        record.rows(SMALL)


def test_an_arrow_frame_of_garbage_is_an_error() -> None:
    """[E2] Whatever Arrow says about a message that is none."""
    import lz4.frame  # noqa: PLC0415 - only here

    chance = random.Random(3)
    good = small_rows(1, 2).combine_chunks().to_batches()[0].serialize().to_pybytes()
    for place in range(0, len(good), 3):
        damaged = bytearray(good)
        damaged[place] ^= 1 << chance.randrange(8)
        record = Record(1, 0, ARROW_BATCH, lz4.frame.compress(bytes(damaged)))
        try:
            rows = record.rows(SMALL)
        except DamagedLog:
            continue
        assert rows.schema == SMALL.arrow
    for size in (0, 1, 7, 8, 100):
        record = Record(1, 0, ARROW_BATCH, lz4.frame.compress(chance.randbytes(size)))
        with pytest.raises(DamagedLog):
            record.rows(SMALL)
