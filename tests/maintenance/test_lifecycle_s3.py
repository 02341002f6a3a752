"""Expiry, versions, compaction and vacuum on S3, where the clock and the ages are the store's."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import s3fs

import strandline
from strandline.api import open_in
from strandline.catalog.runtime import REAL
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.s3 import S3Storage
from strandline.tableformat.windows import DAY_MS, HOUR_MS
from tests.maintenance.aging import SCHEMA, numbers, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.table import Table
    from tests.conftest import S3Bucket

pytestmark = pytest.mark.s3


def create(bucket: S3Bucket, ages: range, *, newest_ms: int | None = None, **config: Any) -> Table:
    """A table with a row of each age in hours."""
    now = int(time.time() * 1000) if newest_ms is None else newest_ms
    table = strandline.create_table(
        bucket.url, SCHEMA, time_column="at", storage_options=bucket.storage_options, **config
    )
    for n in ages:
        table.append([row(now - n * HOUR_MS, n)])
    return table


@contextmanager
def days_later(bucket: S3Bucket, days: int) -> Iterator[Table]:
    """The table by clocks that are ahead: the objects' dates are the store's own, in seconds."""
    right = S3Storage.clock_ms

    def clock_ms(self: S3Storage) -> int:
        return right(self) + days * DAY_MS

    later = replace(REAL, now_ms=lambda: REAL.now_ms() + days * DAY_MS)
    with mock.patch.object(S3Storage, "clock_ms", clock_ms):
        yield open_in(open_storage(bucket.url, bucket.storage_options), runtime=later)


def test_a_table_on_s3_expires(s3_bucket: S3Bucket) -> None:
    """[X1] Prefixes go, and the rest stays."""
    table = create(s3_bucket, range(6), ttl="3h")
    storage = open_storage(s3_bucket.url, s3_bucket.storage_options)
    orphan = f"w0-3600000/shard-0/batch-1-{'a' * 16}.parquet"
    storage.write_new(orphan, b"left behind").wait()
    assert abs(storage.modified_ms(orphan) - storage.clock_ms()) < HOUR_MS

    assert table.expire().prefixes_removed == ()
    removed = table.expire(grace=0)

    assert removed.files_removed >= 3
    assert orphan not in dict(storage.walk(""))
    assert table.scan().count() in (3, 4)
    assert table.verify(deep=True).ok


def test_vacuum_removes_an_orphan_of_a_living_window_on_s3(s3_bucket: S3Bucket) -> None:
    """[C8] What a crashed writer and a compaction left goes; what is needed stays."""
    now = int(time.time() * 1000)
    # The end of a week, so that all rows are in one window whatever day it is.
    table = create(s3_bucket, range(4), newest_ms=now - now % (7 * DAY_MS) - 1, ttl="30d")
    storage = open_storage(s3_bucket.url, s3_bucket.storage_options)
    living = table.files().column("path")[0].as_py()
    orphan = f"{living.rpartition('/')[0]}/batch-1-{'a' * 16}.parquet"
    storage.write_new(orphan, b"left behind").wait()
    small = table.files().column("path").to_pylist()
    table.compact()

    assert orphan not in table.vacuum().removed
    with days_later(s3_bucket, 3) as later:
        assert orphan in later.vacuum().removed
        assert orphan in dict(storage.walk(""))
        done = later.vacuum(dry_run=False)

        assert done.removed == (orphan,)
        assert orphan not in dict(storage.walk(""))
        assert sorted(numbers(later)) == [0, 1, 2, 3]
        assert later.verify(deep=True).ok
    with days_later(s3_bucket, 9) as later:
        later.append([row(int(time.time() * 1000), 4)])
    with days_later(s3_bucket, 18) as later:
        later.expire_versions("7d")
        assert not set(later.vacuum(dry_run=False).removed) & set(small)
        later.append([row(int(time.time() * 1000), 5)])
    # The give-up above has the store's own date of today; its grace is over by both clocks.
    with days_later(s3_bucket, 20) as later:
        assert set(later.vacuum(dry_run=False).removed) >= set(small)
        assert sorted(numbers(later)) == [0, 1, 2, 3, 4, 5]
        assert later.verify(deep=True).ok


def test_vacuum_ends_uploads_that_nobody_will_finish(s3_bucket: S3Bucket) -> None:
    """[C8] Parts of a large object that a crashed writer left cost money and show in no list."""
    create(s3_bucket, range(2))
    fs = s3fs.S3FileSystem(**s3_bucket.storage_options, use_listings_cache=False)
    keys = [f"table/w0-3600000/shard-0/batch-1-{'a' * 16}.parquet", "elsewhere/upload"]
    for key in keys:
        begun = fs.call_s3("create_multipart_upload", Bucket=s3_bucket.name, Key=key)
        fs.call_s3(
            "upload_part",
            Bucket=s3_bucket.name,
            Key=key,
            UploadId=begun["UploadId"],
            PartNumber=1,
            Body=b"x" * (5 << 20),
        )

    def open_uploads() -> list[str]:
        found = fs.call_s3("list_multipart_uploads", Bucket=s3_bucket.name)
        return sorted(upload["Key"] for upload in found.get("Uploads", ()))

    assert open_uploads() == sorted(keys)
    storage = open_storage(s3_bucket.url, s3_bucket.storage_options)
    assert storage.abort_uploads(40 * 365 * DAY_MS) == 0  # moto dates all of them 2010
    with days_later(s3_bucket, 3) as later:
        assert later.vacuum().uploads_ended == 0
        assert open_uploads() == sorted(keys)
        assert later.vacuum(dry_run=False).uploads_ended == 1

    assert open_uploads() == ["elsewhere/upload"]


def test_compaction_on_s3_asks_for_each_segment_once(s3_bucket: S3Bucket) -> None:
    """[M7] [C5] Rows, numbers and answers stay; requests grow with segments, and little more."""
    table = create(s3_bucket, range(0, 240, 8), ttl=None)
    before = table.scan(["_seq", "at", "n"]).to_arrow().to_pylist()
    storage: Any = table._chain.storage  # noqa: SLF001 - requests are counted where they are sent
    sent: Counter[str] = Counter()
    right = storage._send  # noqa: SLF001

    async def counted(call: Any, method: str, **parameters: Any) -> Any:
        sent[method] += 1
        return await right(call, method, **parameters)

    with mock.patch.object(storage, "_send", counted):
        report = table.compact()

    assert (report.segments_before, report.segments_after) == (30, report.runs)
    assert table.scan(["_seq", "at", "n"]).to_arrow().to_pylist() == before
    assert table.verify(deep=True).ok
    # Per run: the new object, the manifest and perhaps a page; per segment at most two reads.
    assert sent["put_object"] <= 3 * report.runs + 3
    assert sent["get_object"] <= 2 * 30 + 6 * report.runs + 4
    assert sum(sent.values()) <= 2 * 30 + 12 * report.runs + 8


def test_followers_and_changes_go_on_across_a_real_compaction(s3_bucket: S3Bucket) -> None:
    """[O11] [C7] No gap and no repeat, also when the compacted files are gone."""
    table = create(s3_bucket, range(0), ttl=None)
    now = int(time.time() * 1000)
    for n in range(6):
        table.append([row(now, n)])
    since = table.version
    for n in range(6, 12):
        table.append([row(now, n)])
    found: list[int] = []
    with table.follow(0, ["n"], poll="10ms") as batches:
        found += next(batches).column("n").to_pylist()
        other = strandline.open_table(s3_bucket.url, storage_options=s3_bucket.storage_options)
        assert other.compact().segments_after == 1
        other.append([row(now, 12)])
        while len(found) < 13:
            found += next(batches).column("n").to_pylist()

    assert found == list(range(13))
    assert numbers_of(other.changes(since)) == list(range(6, 13))


def numbers_of(scan: Any) -> list[int]:
    """The values that a scan gives, in its order."""
    found: list[int] = scan.to_arrow().column("n").to_pylist()
    return found
