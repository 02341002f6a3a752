"""Rows of an event table, the same for every contestant: 13 columns, made from a seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

START_MS = 1_704_103_200_000
"""2024-01-01 10:00 UTC: long past, so that no clock caps a timestamp."""
ROW_EVERY_MS = 1
_CHUNK_ROWS = 1_000_000
_COUNTRIES = ["US", "DE", "IN", "BR", "JP", "FR", "GB", "NG", "MX", "ID", "PL", "SE"]
_DEVICES = ["phone", "tablet", "desktop", "tv"]
_EVENTS = ["view", "click", "search", "add_to_cart", "checkout", "purchase", "refund", "login"]

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("event_id", pa.int64()),
        pa.field("user_id", pa.string()),
        pa.field("country", pa.string()),
        pa.field("device", pa.string()),
        pa.field("event_type", pa.string()),
        pa.field("url", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("quantity", pa.int32()),
        pa.field("duration_ms", pa.int64()),
        pa.field("status", pa.int32()),
        pa.field("is_member", pa.bool_()),
        pa.field("price", pa.decimal128(12, 2)),
    ]
)


def events(rows: int, *, first_id: int = 0, seed: int = 7) -> pa.Table:
    """`rows` events one millisecond apart; `event_id` counts up from `first_id` and is unique."""
    batches = []
    for start in range(0, rows, _CHUNK_ROWS):
        count = min(_CHUNK_ROWS, rows - start)
        batches.append(_chunk(count, first_id + start, np.random.default_rng((seed, start))))
    return pa.Table.from_batches(batches, schema=SCHEMA)


VISITS = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("event_id", pa.int64()),
        pa.field("user_id", pa.string()),
        pa.field("country", pa.string()),
        pa.field("event_type", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("status", pa.int32()),
    ]
)


def visits(rows: int, *, first_id: int, users: int) -> pa.Table:
    """Rows that readers look for: one each millisecond, users in no order and equally often."""
    random = np.random.default_rng((11, first_id))
    ids = np.arange(first_id, first_id + rows, dtype=np.int64)
    names = pa.array([user_name(n) for n in range(users)])
    return pa.table(
        [
            pa.array((START_MS + ids * ROW_EVERY_MS) * 1_000, VISITS.field("ts").type),
            pa.array(ids),
            names.take(pa.array(random.integers(0, users, rows))),
            _chosen(_COUNTRIES, rows, random),
            _chosen(_EVENTS, rows, random),
            pa.array(np.round(random.gamma(2.0, 30.0, rows), 2)),
            pa.array(random.choice([200, 201, 302, 404, 500], rows), pa.int32()),
        ],
        schema=VISITS,
    )


def user_name(number: int) -> str:
    """How users are called."""
    return f"user-{number:08d}"


def _chunk(rows: int, first_id: int, random: np.random.Generator) -> pa.RecordBatch:
    ids = np.arange(first_id, first_id + rows, dtype=np.int64)
    users = random.integers(0, 200_000, rows)
    paths = random.integers(0, 2_000_000, rows)
    cents = random.integers(1, 500_000, rows)
    return pa.record_batch(
        [
            pa.array((START_MS + ids * ROW_EVERY_MS) * 1_000, pa.timestamp("us", tz="UTC")),
            pa.array(ids),
            pa.array(np.char.mod("user-%06d", users).tolist(), pa.string()),
            _chosen(_COUNTRIES, rows, random),
            _chosen(_DEVICES, rows, random),
            _chosen(_EVENTS, rows, random),
            pa.array(
                np.char.mod("https://shop.example/products/%07d?ref=mail", paths).tolist(),
                pa.string(),
            ),
            pa.array(np.round(random.gamma(2.0, 30.0, rows), 2)),
            pa.array(random.integers(1, 20, rows), pa.int32()),
            pa.array(random.integers(1, 90_000, rows), pa.int64()),
            pa.array(random.choice([200, 201, 302, 404, 500], rows), pa.int32()),
            pa.array(random.random(rows) < 0.3),
            pa.array(cents).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2)),
        ],
        schema=SCHEMA,
    )


def _chosen(words: list[str], rows: int, random: np.random.Generator) -> pa.Array:
    weights = np.arange(len(words), 0, -1, dtype=float)
    codes = random.choice(len(words), rows, p=weights / weights.sum())
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words).cast(pa.string())
