"""The golden tables, one function each."""

# ruff: noqa: D103, INP001 - functions beside the tables they write, each with its story
from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
from world import START_MS, World, at, small_limits

from strandline.catalog.commit import MetadataChange, commit
from strandline.catalog.tidy import tidy
from strandline.tableformat import codec, config, paths, types
from strandline.tableformat.actions import ClaimWriter, WalKey
from strandline.tableformat.indexes import postings_blocks as blocks_of_postings
from strandline.writers import append as appends
from strandline.writers.ingest import to_arrow

Build = Callable[[World], None]
GOLDENS: dict[str, tuple[str, Build, tuple[int, ...]]] = {}


def golden(shows: str, *, also: tuple[int, ...] = ()) -> Callable[[Build], Build]:
    """Register a table; `also` names older versions whose rows are recorded beside the head's."""

    def register(build: Build) -> Build:
        GOLDENS["v1_" + build.__name__] = (shows, build, also)
        return build

    return register


@golden("A table that was created and nothing else.")
def empty(world: World) -> None:
    world.create({"ts": "timestamptz", "n": "int64"}, time_column="ts")


@golden("One append into one window: dense rows, `_ts` from the time column.", also=(1,))
def single_append(world: World) -> None:
    table = world.create({"ts": "timestamptz", "n": "int64"}, time_column="ts", ttl="7d")
    table.append([{"ts": at(1, 1999), "n": 1}, {"ts": at(1), "n": None}, {"ts": at(2), "n": -3}])


@golden("The table of SPEC.md, section 16.", also=(1, 2))
def worked_example(world: World) -> None:
    schema = {"ts": "timestamptz", "name": "string", "x": "float64"}
    table = world.create(schema, time_column="ts", ttl="1d")
    table.append(
        [
            {"ts": at(10), "name": "a", "x": 1.5},
            {"ts": at(10 + 1 / 60), "name": None, "x": float("nan")},
        ]
    )
    table.append(
        [
            {"ts": at(11), "name": "b", "x": 1.5},
            {"ts": at(10.5), "name": "c", "x": -0.0},
            {"ts": at(11 + 1 / 60, 1500), "name": "d" * 40, "x": 0.0},
        ],
        writer_id="sensor-7",
        batch=7,
        properties={"job": "demo"},
    )


ALL_TYPES = {
    "ts": "timestamptz",
    "a_bool": "bool",
    **{f"a_{name}": name for name in ("int8", "int16", "int32", "int64")},
    **{f"a_{name}": name for name in ("uint8", "uint16", "uint32", "float32", "float64")},
    "a_decimal": "decimal(10,2)",
    "a_huge_decimal": "decimal(38,0)",
    "a_date": "date",
    "a_timestamp": "timestamp",
    "a_timestamptz": "timestamptz",
    "a_string": "string",
    "a_binary": "binary",
    "a_list": pa.list_(pa.int32()),
    "a_struct": pa.struct({"x": pa.float64(), "when": pa.timestamp("us", "UTC")}),
    "a_map": pa.map_(pa.string(), pa.decimal128(5, 1)),
    "a_deep": pa.list_(pa.struct({"tags": pa.list_(pa.string()), "m": pa.map_("int8", "string")})),
}


@golden("Every type with extremes, nulls, NaN, both zeros, infinities, empty and nested values.")
def all_types(world: World) -> None:
    table = world.create(ALL_TYPES, time_column="ts")
    inf, nan = float("inf"), float("nan")
    kinds = {f"a_{k}": v for k, v in types.INTEGER_RANGES.items()}
    least: dict[str, Any] = {
        "a_bool": False,
        **{name: low for name, (low, _) in kinds.items()},
        "a_float32": -inf,
        "a_float64": -0.0,
        "a_decimal": Decimal("-99999999.99"),
        "a_huge_decimal": Decimal(-(10**38 - 1)),
        "a_date": date(1, 1, 1),
        "a_timestamp": datetime(1, 1, 1),  # noqa: DTZ001 - the type has no zone
        "a_timestamptz": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        "a_string": "",
        "a_binary": b"",
        "a_list": [],
        "a_struct": {"x": None, "when": None},
        "a_map": [],
        "a_deep": [],
    }
    most: dict[str, Any] = {
        "a_bool": True,
        **{name: high for name, (_, high) in kinds.items()},
        "a_float32": nan,
        "a_float64": nan,
        "a_decimal": Decimal("99999999.99"),
        "a_huge_decimal": Decimal(10**38 - 1),
        "a_date": date(9999, 12, 31),
        "a_timestamp": datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
        "a_timestamptz": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        "a_string": "\U0010ffff" * 40,
        "a_binary": b"\xff" * 40,
        "a_list": [1, None, -(2**31)],
        "a_struct": {"x": nan, "when": at(0, 1)},
        "a_map": [("k", Decimal("1.5")), ("", None)],
        "a_deep": [None, {"tags": ["a", None, ""], "m": [(1, "x")]}, {"tags": None, "m": []}],
    }
    middle = {
        **dict.fromkeys(least),
        "a_float32": 0.1,
        "a_float64": 0.0,
        "a_string": "Ünï\u0000cödé 🌊",
        "a_timestamptz": datetime(2026, 3, 29, 3, 30, tzinfo=UTC),
        "a_decimal": Decimal("0.10"),
    }
    columns = {
        "ts": pa.array([at(0), at(1), at(2), at(3)], pa.timestamp("us", "UTC")),
        **{
            name: pa.array([low, high, mid, None], types.to_arrow(table_type))
            for name, table_type in (
                (name, types.from_json(kind) if isinstance(kind, str) else types.from_arrow(kind))
                for name, kind in ALL_TYPES.items()
                if name != "ts"
            )
            for low, high, mid in [(least[name], most[name], middle[name])]
        },
    }
    table.append(pa.table(columns))
    table.append([{"ts": at(4), "a_float64": inf, "a_float32": -0.0, "a_string": "plain"}])
    table.append([{"ts": at(5)}, {"ts": at(6)}])


@golden("Batches that jump between windows: files with `_off`, windows that interleave.", also=(2,))
def offset_rows(world: World) -> None:
    table = world.create({"ts": "timestamp", "n": "int32"}, time_column="ts", ttl="10m")
    for batch in range(2):
        times = [at(23, (i * 37 % 11) * 20_000_000 + 999).replace(tzinfo=None) for i in range(12)]
        table.append([{"ts": time, "n": 100 * batch + i} for i, time in enumerate(times)])


@golden("Stored `_ts`: nulls in the time column, a future that was capped, milliseconds as int64.")
def stored_ts(world: World) -> None:
    table = world.create({"ms": "int64", "n": "int32"}, time_column="ms", ttl="1d")
    hour = 3_600_000
    table.append([{"ms": START_MS - hour, "n": 1}, {"ms": None, "n": 2}])
    table.append([{"ms": 4_102_444_800_000, "n": 3}, {"ms": START_MS - 2 * hour, "n": 4}])
    table.append([{"ms": START_MS - hour, "n": 5}])


@golden("No time column: rows have the time of their arrival.")
def arrival(world: World) -> None:
    table = world.create({"n": "int32"})
    table.append([{"n": 1}, {"n": 2}])
    table.append([{"n": 3}])


@golden("order=clamp: `_ts` never goes back, the column stays as given.")
def clamp(world: World) -> None:
    table = world.create({"ts": "timestamptz", "n": "int32"}, time_column="ts", order="clamp")
    table.append([{"ts": at(5), "n": 1}, {"ts": at(3), "n": 2}, {"ts": at(6), "n": 3}])
    table.append([{"ts": at(4), "n": 4}, {"ts": at(7), "n": 5}])


@golden(
    "Columns added, renamed, dropped, widened, reordered, with comment and default.", also=(2, 5)
)
def evolved(world: World) -> None:
    schema = {
        "ts": "timestamptz",
        "small": "int8",
        "price": "decimal(4,2)",
        "ratio": "float32",
        "old": "string",
        "name": "string",
    }
    table = world.create(schema, time_column="ts")
    first = {
        "small": -128,
        "price": Decimal("12.34"),
        "ratio": 0.10000000149011612,
        "old": "x",
        "name": "n1",
    }
    table.append([{"ts": at(0), **first}])
    table.evolve(
        add={"extra": "int32"},
        rename={"name": "title"},
        drop=["old"],
        widen={"small": "int64", "price": "decimal(38,2)", "ratio": "float64"},
    )
    table.append(
        [{"ts": at(1), "small": 2**40, "price": Decimal("-" + "9" * 36), "ratio": 0.1, "extra": 7}]
    )
    table.evolve(
        add={"old": "int64", "name": "bool"},
        reorder=["name", "ts"],
        comments={"title": "was: name"},
        defaults={"extra": 42},
    )
    table.append([{"ts": at(2), "old": 1, "name": True, "title": "n3"}])


@golden("Names that cannot be physical names: spaces, dots, scripts, case, look-alikes.")
def odd_names(world: World) -> None:
    names = ["ts", "a b", "a.b", "größe", "c7_x", "SELECT", "日本", "x" * 255]
    table = world.create(
        {"ts": "timestamptz", **dict.fromkeys(names[1:], "int32")}, time_column="ts"
    )
    table.append([{"ts": at(1), **{name: i for i, name in enumerate(names[1:])}}])


@golden("Segment pages, merged pages, folded windows, inline segments: all four places at once.")
def pages(world: World) -> None:
    schema = {
        "ts": "timestamptz",
        "n": "int64",
        "x": "float64",
        "s": "string",
        "b": "binary",
        "d": "decimal(20,3)",
        "f": "bool",
    }
    table = world.create(schema, time_column="ts", ttl="1d")
    with small_limits():
        for i in range(15):
            table.append([_row_for_pages(i, k) for k in (0, 4, 1)])


def _row_for_pages(i: int, k: int) -> dict[str, Any]:
    return {
        "ts": at(i / 4 + k / 3),
        "n": 10 * i + k,
        "x": float("nan") if i == 3 else i / 4,  # noqa: PLR2004 - one with NaN
        "s": None if i == 5 else f"{'key' * 12}-{i:03}",  # noqa: PLR2004 - one without text
        "b": bytes([i, 255]),
        "d": Decimal(i) / 8,
        "f": i % 2 == 0,
    }


@golden("Writer positions: external and write-ahead log, in the manifest and folded into pages.")
def positions(world: World) -> None:
    table = world.create({"n": "int32"})
    with small_limits():
        for i in range(6):
            table.append([{"n": i}], writer_id=f"writer-{i % 4}", batch=10 + i)
    head = table._head  # noqa: SLF001 - a log's key has no public road yet
    rows = pa.table({"n": pa.array([100, 101], pa.int32())})
    change = appends.AppendChange(
        table._chain.storage,  # noqa: SLF001
        world.runtime,
        head.manifest,
        rows=rows,
        schema=head.manifest.schema,
        conditions=appends.Conditions(key=WalKey("log-1", "0123456789abcdef" * 2, 1, 2)),
    )
    done = commit(table._chain, head, change, operation="append")  # noqa: SLF001
    with small_limits():
        tidy(table._chain, done.snapshot)  # noqa: SLF001


@golden(
    "Shards by key, rows sorted inside files, late files, marks, and a log's claims.", also=(4,)
)
def sharded_late(world: World) -> None:
    table = world.create(
        {"ts": "timestamptz", "key": "string", "n": "int32"},
        time_column="ts",
        ttl="1d",
        shard_by="key",
        shards=4,
        sort_by=["key", "n"],
        jitter_ms=600_000,
    )
    chain = table._chain  # noqa: SLF001 - as above

    def claim(incarnation: str) -> None:
        change = MetadataChange((ClaimWriter("log-1", incarnation),))
        commit(chain, chain.find_head(), change, operation="claim")

    def append(hours: list[float], keys: list[str | None], first: int, record: int) -> None:
        head = chain.find_head()
        rows = to_arrow(
            [
                {"ts": at(h), "key": keys[i % len(keys)], "n": first - i}
                for i, h in enumerate(hours)
            ],
            head.manifest.schema,
        )
        key = WalKey("log-1", "fedcba98" * 4, record, record + 1)
        change = appends.AppendChange(
            chain.storage,
            world.runtime,
            head.manifest,
            rows=rows,
            schema=head.manifest.schema,
            conditions=appends.Conditions(key=key),
        )
        commit(chain, head, change, operation="append")

    claim("01234567" * 4)
    claim("fedcba98" * 4)
    append([i / 4 for i in range(12)], ["a", "b", "ä", None, "a"], 100, 1)
    append([2.5, 2.75, 2.9, 1, 0.1, 3], ["b", "a", "c", "d"], 50, 3)


@golden(
    "Overwrites: of inline segments, of pages and of folded windows; one that only empties.",
    also=(5, 12, 14),
)
def replaced(world: World) -> None:
    table = world.create({"ts": "timestamptz", "n": "int32"}, time_column="ts", ttl="7d")
    table.append([{"ts": at(1), "n": 1}, {"ts": at(2), "n": 2}])
    table.overwrite([{"ts": at(3), "n": 3}])
    with small_limits():
        for day in range(6):
            table.append([{"ts": at(-24 * (day // 2)), "n": 10 + day}])
    table.overwrite([{"ts": at(4), "n": 4}, {"ts": at(-30), "n": 5}])
    table.overwrite([])
    table.append([{"ts": at(5), "n": 6}])


@golden(
    "Compaction and deletes: stored `_seq`, stored and derived `_ts`, dense runs, in pages and in "
    "the manifest.",
    also=(17, 20),
)
def compacted(world: World) -> None:
    schema = {"ts": "timestamptz", "k": "string", "n": "int32"}
    table = world.create(schema, time_column="ts", ttl="1d")
    with small_limits():
        for n in range(6):
            times = [at(n % 3 / 2), at(5), None if n % 2 else at(5.5)]
            table.append(
                [
                    {"ts": time, "k": "abc"[(i + n) % 3], "n": 10 * n + i}
                    for i, time in enumerate(times)
                ]
            )
        table.compact()
        table.delete(filter="k = 'b' AND n < 30")
        table.append([{"ts": at(5), "k": "d", "n": 100}])
        table.compact(["k"])
    table.append([{"ts": at(6), "k": "e", "n": 101}])


@golden(
    "Expiry, a trim, a tag, changed settings and a rollback: windows gone from inline segments, "
    "pages and folded windows.",
    also=(9, 14),
)
def lifecycle(world: World) -> None:
    table = world.create({"ts": "timestamptz", "n": "int32"}, time_column="ts", ttl="1d")
    with small_limits():
        for n in range(5):
            table.append([{"ts": at(n // 2 - 30), "n": n}, {"ts": at(n - 20), "n": 10 + n}])
    table.tag("before")
    table.expire(now=at(0), grace="24h")
    table.append([{"ts": at(-1), "n": 20}])
    table.set(ttl="2d", history="30d", delete_on_empty_secs=3_600)
    table.trim(4)
    table.rollback("before")
    table.append([{"ts": at(-1), "n": 21}])


@golden(
    "A primary key of two columns: late and equal times, shards, a trim point, an older version.",
    also=(3, 4),
)
def keyed(world: World) -> None:
    table = world.create(
        {"ts": "timestamptz", "shop": "string", "item": "decimal(6,2)", "price": "float64"},
        time_column="ts",
        ttl="1d",
        primary_key=["item", "shop"],
        shard_by="shop",
        shards=2,
    )

    def prices(shop: str, *rows: tuple[float, str, str, float | None]) -> None:
        names = ("ts", shop, "item", "price")
        table.append(
            [
                dict(zip(names, (at(hours), key, Decimal(item), price), strict=True))
                for hours, key, item, price in rows
            ]
        )

    prices(
        "shop",
        (4, "d", "5", 0.5),
        (1, "a", "1", 1.0),
        (1, "b", "1", 2.0),
        (1, "a", "1.10", 3.0),
        (2, "a", "1", 4.0),
    )
    # The first comes too late to win, the second is as new as what it replaces.
    prices("shop", (1.5, "a", "1", 5.0), (1, "b", "1", None), (1.5, "", "1.1", 6.0))
    table.evolve(rename={"shop": "store"}, reorder=["price"])
    prices("store", (3, "a", "2", 7.0), (0.5, "a", "1.10", 8.0), (0.25, "d", "5", 9.0))
    # The row that is trimmed had won: the one that lost to it counts again.
    world.commit_by_hand("trim", trim_seq="1")


@golden(
    "Tombstones: inline and in pages, for rows of the past and the future, late rows, a trim "
    "point.",
    also=(5, 7),
)
def tombstones(world: World) -> None:
    schema = {"ts": "timestamptz", "shop": "string", "item": "int32", "price": "float64"}
    table = world.create(
        schema,
        time_column="ts",
        ttl="1d",
        uncapped=True,
        primary_key=["shop", "item"],
        shard_by="shop",
        shards=2,
    )

    def upsert(*rows: tuple[float, str, int, float | None]) -> None:
        table.upsert([dict(zip(schema, (at(row[0]), *row[1:]), strict=True)) for row in rows])

    with small_limits():
        upsert((1, "a", 1, 1.0), (2, "a", 2, 2.0), (30, "b", 1, 3.0), (1, "c", 1, 4.0))
        # One of each: a row of the past, one of the future, a key that nobody has seen.
        table.delete(keys=[("a", 1), ("b", 1), ("z", 9)])
        # The first is older than its delete, the second newer, the third never deleted.
        upsert((3, "a", 1, 5.0), (31, "b", 1, 6.0), (4, "c", 1, None))
        table.delete(filter="price = 2.0")
        upsert((1, "a", 2, 7.0), (23.5, "z", 9, 8.0))
        table.evolve(rename={"price": "cost"}, add={"note": "string"})
    table.delete(keys=[("c", 1)])
    # The tombstone of ("a", 1) is trimmed: the row that came late counts.
    world.commit_by_hand("trim", trim_seq="5")


@golden("A fence: it changes nothing for readers.")
def fence(world: World) -> None:
    table = world.create({"n": "int32"})
    table.append([{"n": 1}])
    table.fence("token-1")
    table.append([{"n": 2}], fence="token-1")


@golden(
    "A floor and a trim point, committed by hand: hidden rows, also in older versions.", also=(3,)
)
def floor_and_trim(world: World) -> None:
    table = world.create({"ts": "timestamptz", "n": "int32"}, time_column="ts", ttl="7d")
    table.append([{"ts": at(h), "n": h} for h in (8, 1, 9, 2, 10)])
    table.append([{"ts": at(h), "n": h} for h in (3, 11, 12)])
    floor = int(at(2.5).timestamp() * 1000)
    world.commit_by_hand("expire", floor_ts=str(floor))
    world.commit_by_hand("trim", trim_seq="2")
    world.open().append([{"ts": at(2), "n": 2}, {"ts": at(13), "n": 13}])


@golden("Fields of the future everywhere, `files` and `vector_indexes` among them: ignored, kept.")
def unknown_fields(world: World) -> None:
    table = world.create({"ts": "timestamptz", "n": "int32"}, time_column="ts")
    for i in range(3):
        table.append([{"ts": at(i), "n": i}])
    document = world.document(world.head())
    for entry in document["segments"]:
        entry["vector_indexes"] = {"2": {"kind": "hnsw"}}
        entry["column_stats"]["1"]["sketch"] = "AAAA"
    document["config"]["later"] = {"a": [1, None, "x"]}
    document["schema"]["columns"][0]["unit"] = "s"
    world.commit_by_hand(
        "future",
        files={"columns": [2]},
        vector_indexes=[{"column": 2}],
        segments=document["segments"],
        config=document["config"],
        schema=document["schema"],
    )
    again = world.open()
    again.append([{"ts": at(3), "n": 3}])
    with small_limits():
        again.append([{"ts": at(4), "n": 4}])


@golden("More commits than the history keeps.", also=(2,))
def long_history(world: World) -> None:
    table = world.create({"n": "int32"})
    table.append([{"n": 1}], properties={"source": "test"})
    for i in range(36):
        table.fence(f"token-{i}")
    table.fence(None)
    table.append([{"n": 2}])


@golden(
    "Removed versions: a marker for version 4, and a zombie under the name of version 2.", also=(4,)
)
def removed_versions(world: World) -> None:
    table = world.create({"n": "int32"})
    for i in range(4):
        table.append([{"n": i}])
    (world.folder / paths.GC_MARKERS).mkdir()
    for version in (2, 4):
        (world.folder / paths.gc_marker_path(version)).write_bytes(b"")
    for version in (1, 3):
        world.manifest_file(version).unlink()
    (world.folder / paths.MANIFESTS / "notes.txt").write_text("not a manifest")
    (world.folder / paths.MANIFESTS / "99999999999999999999.json.lz4").write_text("neither")


@golden("Index catalogs with every kind, for entries in the manifest and in a page, and a debt.")
def indexed(world: World) -> None:
    with small_limits(), mock.patch.object(config, "MIN_ROW_GROUP", 1):
        table = world.create(
            {"ts": "timestamptz", "user": "string", "x": "float64", "kind": "string"},
            time_column="ts",
            row_group_rows=64,
            zone_rows=8,
            zone_pages=True,
            indexes={
                "ts": ["temporal", "calendar", "rank"],
                "user": ["postings", "membership", "zone_map"],
                "x": ["range", "zone_membership"],
                "kind": ["enum_bitmap"],
            },
        )
        for batch, count in enumerate([100, 5, 5, 5, 5, 100]):
            table.append(
                [
                    {
                        "ts": at(1 + (batch * 100 + i) / 80),
                        "user": f"u{(batch * 100 + i) * 7 % 30}",
                        "x": None if i % 13 == 0 else float("nan") if i % 31 == 0 else i / 8,
                        "kind": f"k{i // 40}",
                    }
                    for i in range(count)
                ]
            )
    version = world.head()
    document = world.document(version)
    document["segments"][-1]["index_debt"] = {"2": ["postings"]}
    world.put(version, document)


@golden(
    "Postings with the checksums of their blocks, once with a count for each hash and once without."
)
def postings_blocks(world: World) -> None:
    with (
        mock.patch.object(config, "MIN_ROW_GROUP", 1),
        mock.patch.object(blocks_of_postings, "LEAST_BYTES", 1),
    ):
        table = world.create(
            {"ts": "timestamptz", "n": "int64"},
            time_column="ts",
            row_group_rows=64,
            zone_rows=8,
            indexes={"n": ["postings"]},
        )
        for count, distinct in ((300, 300), (150, 40)):
            table.append([{"ts": at(i / 80), "n": i * 7 % distinct} for i in range(count)])


@golden(
    "What other writers may do: codecs, encodings, data page versions, block sizes, statistics."
)
def other_writer(world: World) -> None:
    table = world.create(
        {"ts": "timestamptz", "d": "decimal(9,2)", "s": "string", "gone": "int32"}, time_column="ts"
    )
    codecs = ("snappy", "lz4", "none", "zstd")
    for i, _ in enumerate(codecs):
        rows = [{"ts": at(i), "d": Decimal(i) / 4, "s": "same", "gone": k} for k in range(3)]
        table.append(rows)
    table.evolve(drop=["gone"])
    version = world.head()
    document = world.document(version)
    for entry, codec_name in zip(document["segments"], codecs, strict=True):
        file = world.folder / entry["path"]
        data = _rewritten(pq.read_table(file), codec_name)
        file.write_bytes(data)
        length = int.from_bytes(data[-8:-4], "little")
        entry["size_bytes"], entry["footer_bytes"] = str(len(data)), length
        entry["footer_xxh64"] = codec.checksum(data[-8 - length : -8])
        entry["column_stats"] = {}
    for old in range(2, version):
        world.manifest_file(old).unlink()
    (world.folder / paths.GC_MARKERS).mkdir()
    (world.folder / paths.gc_marker_path(version)).write_bytes(b"any content")
    world.put(version, document, block_size=lz4.frame.BLOCKSIZE_MAX4MB, compression_level=9)


def _rewritten(rows: pa.Table, codec_name: str) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows.select(list(reversed(rows.column_names))),
        sink,
        compression=codec_name,
        use_dictionary=codec_name in ("snappy", "none"),
        data_page_version="2.0" if codec_name in ("snappy", "zstd") else "1.0",
        store_decimal_as_integer=codec_name == "lz4",
        write_page_checksum=True,
        row_group_size=2,
        store_schema=codec_name != "none",
    )
    return bytes(sink.getvalue())
