"""Credentials given to catalogs, streams, snapshots, queries, maintenance, the command: kept."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

import strandline
from strandline import cli
from tests.tables import SCHEMA, events, memory_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.s3

CANARIES = {
    "key": "CANARYKEY0123456789B",
    "secret": "canary-secret-Yw92kR",
    "token": "canary-token-8jKlV1oP",
}


def _use_everything(url: str, options: dict[str, Any]) -> list[str]:
    """Do what there is to do on a store, and give what can be seen of it."""
    catalog = strandline.Catalog(f"{url}/lake", storage_options=options)
    table = catalog.create_table("ns.events", SCHEMA, time_column="ts", ttl="1d", uncapped=True)
    for batch in range(3):
        table.append(events(3 * batch, 3))
    query = {"columns": ["user"], "aggregates": {"rows": "count(*)"}}
    table.remember("by_user", query)
    users = catalog.create_table("ns.users", {"n": "int64"}, scope="user")
    assert isinstance(users, strandline.UsersTable)
    users.user("alice").append([{"n": 1}])
    stream = strandline.create_table(
        f"{url}/stream",
        {"id": "string"},
        kind="stream",
        ttl="1h",
        row_id="id",
        storage_options=options,
    )
    stream.put("alice", [{"id": "a"}])
    stream.flush()
    snapshot = table.export(f"{url}/all.snap", storage_options=options)
    copy = strandline.create_table(f"{url}/copy", SCHEMA, storage_options=options)
    with table.follow(from_seq=0) as follower:
        next(follower)
        seen = [repr(follower)]
    seen += [
        repr(catalog),
        repr(catalog.list_tables("ns")),
        repr(catalog.describe_table("ns.events")),
        repr(table),
        repr(table.show("by_user")),
        repr(table.manifest_service),
        repr(users.user("alice")),
        repr(users.scan_users()),
        repr(stream),
        repr(stream.latest("alice")),
        repr(snapshot),
        repr(strandline.inspect_snapshot(f"{url}/all.snap", storage_options=options)),
        repr(strandline.replay(f"{url}/all.snap", copy, storage_options=options)),
        str(table.compact()),
        str(table.verify(deep=True)),
        str(table.vacuum()),
        str(table.expire()),
        str(table.maintain()),
        str(strandline.doctor(f"{url}/copy", storage_options=options)),
    ]
    stream.close()
    catalog.drop_table("ns.events")
    seen.append(repr(catalog.purge("ns", older_than=None, force=True)))
    return seen


def _failures(url: str, options: dict[str, Any]) -> list[Callable[[], Any]]:
    """The same doors on a store that cannot be reached, and on a bucket that is not there."""
    gone = {**options, "endpoint_url": "http://127.0.0.1:9"}
    local = strandline.create_table("memory://secrets", SCHEMA, exist_ok=True)
    wrong = "s3://no-such-bucket-anywhere/x"
    return [
        lambda: strandline.Catalog(f"{url}/lake", storage_options=gone).list_tables("ns"),
        lambda: strandline.Catalog(wrong, storage_options=options).create_table("a.b", SCHEMA),
        lambda: strandline.open_table(wrong, kind="stream", storage_options=options),
        lambda: local.export(wrong, storage_options=options),
        lambda: local.export(f"{url}/x.snap", storage_options=gone),
        lambda: strandline.inspect_snapshot(f"{url}/no.snap", storage_options=options),
        lambda: strandline.replay(f"{url}/no.snap", local, storage_options=gone),
        lambda: local.export(f"{url}/x.snap", storage_options={**options, "nonsense": 1}),
    ]


def test_credentials_never_come_out_of_any_door(
    s3_bucket: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """[C10] Not in logs at DEBUG, reprs, errors, tracebacks, stored bytes, nor what is printed."""
    options = {**s3_bucket.storage_options, **CANARIES}
    file = tmp_path / "options.json"
    file.write_text(json.dumps(options))
    with caplog.at_level(logging.DEBUG):
        seen = _use_everything(s3_bucket.url, options)
        for fail in _failures(s3_bucket.url, options):
            with pytest.raises(strandline.StrandlineError) as caught:
                fail()
            seen += [str(caught.value), repr(caught.value), repr(pickle.dumps(caught.value))]
            seen += traceback.format_exception(caught.value)
        for words in (["describe"], ["scan", "--json"], ["doctor"], ["maintain"], ["files"]):
            table = f"{s3_bucket.url}/copy"
            assert cli.main([words[0], table, *words[1:], "--storage-options-file", str(file)]) == 0
        assert cli.main(["scan", "s3://no-bucket/x", "--storage-options-file", str(file)]) == 1
        assert cli.main(["scan", f"{s3_bucket.url}/no", "--storage-option", "key=CANARYKEY"]) == 1
    shown = "\n".join([*seen, caplog.text, *capsys.readouterr()])
    bucket = fsspec.filesystem("s3", **s3_bucket.storage_options)
    stored = b"".join(bucket.cat_file(path) for path in bucket.find(s3_bucket.name))
    for canary in CANARIES.values():
        assert canary not in shown
        assert canary.encode() not in stored


def test_a_process_that_only_looks_at_a_snapshot_logs_no_secret(s3_bucket: Any) -> None:
    """[C10] Nothing else has guarded the libraries' loggers there."""
    local = strandline.create_table(memory_url(), SCHEMA)
    local.append(events(0, 3))
    url = f"{s3_bucket.url}/one.snap"
    local.export(url, storage_options=s3_bucket.storage_options)
    options = {**s3_bucket.storage_options, **CANARIES}
    program = f"""
import logging, strandline
logging.basicConfig(level=logging.DEBUG)
strandline.inspect_snapshot({url!r}, storage_options={options!r})
"""

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )

    assert "botocore" in done.stderr
    assert not [canary for canary in CANARIES.values() if canary in done.stderr + done.stdout]
