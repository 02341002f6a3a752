"""Expiry, versions and vacuum on S3, where the clock and the ages are the store's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import strandline
from strandline.tableformat.storage import open_storage
from strandline.tableformat.windows import HOUR_MS

if TYPE_CHECKING:
    from tests.conftest import S3Bucket


def test_a_table_on_s3_expires_and_is_vacuumed(s3_bucket: S3Bucket) -> None:
    """[X1] [C8] Prefixes and orphans go, the rest stays; no upload is left open."""
    now = int(time.time() * 1000)
    table = strandline.create_table(
        s3_bucket.url,
        {"at": "int64", "n": "int64"},
        time_column="at",
        ttl="3h",
        storage_options=s3_bucket.storage_options,
    )
    for n in range(6):
        table.append([{"at": now - n * HOUR_MS, "n": n}])
    storage = open_storage(s3_bucket.url, s3_bucket.storage_options)
    orphan = f"w0-3600000/shard-0/batch-1-{'a' * 16}.parquet"
    storage.write_new(orphan, b"left behind").wait()
    assert abs(storage.modified_ms(orphan) - storage.clock_ms()) < HOUR_MS

    assert table.expire().prefixes_removed == ()
    removed = table.expire(grace=0)

    assert removed.files_removed >= 3
    assert table.scan().count() in (3, 4)
    assert table.vacuum().unknown == 0
    table.vacuum(dry_run=False, grace=0)
    assert orphan not in dict(storage.walk(""))
    assert storage.abort_uploads(storage.clock_ms()) == 0
    assert table.verify(deep=True).ok
