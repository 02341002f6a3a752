"""What a doctor finds: never an exception, always the whole list."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.tableformat import paths
from strandline.tableformat.storage import Put
from strandline.tableformat.stores import local
from tests.tables import events

if TYPE_CHECKING:
    from tests.conftest import S3Bucket
    from tests.tables import Place

LOCAL_HOUR_MS = 3_600_000


def _statuses(report: strandline.DoctorReport) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def _message(report: strandline.DoctorReport, name: str) -> str:
    return next(check.message for check in report.checks if check.name == name)


def test_a_healthy_table_passes_every_check(place: Place) -> None:
    """On disk, in memory and on S3; the probe leaves nothing behind."""
    table = place.create()
    table.append(events(0, 3))

    report = strandline.doctor(place.url, place.storage_options)

    assert report.ok
    assert set(_statuses(report).values()) == {"ok"}
    assert "version 2, 3 rows" in _message(report, "table")
    assert place.open().tail().next_seq == 3


def test_a_place_without_a_table_is_fine(place: Place) -> None:
    """Before the first table is created, the doctor says whether one can be."""
    report = strandline.doctor(place.url, place.storage_options)

    assert report.ok
    assert _statuses(report)["table"] == "skipped"
    assert _statuses(report)["create"] == "ok"


def test_read_only_writes_nothing(tmp_path: Path) -> None:
    """[C10] With read-only credentials nothing is tried that would need more."""
    report = strandline.doctor(tmp_path / "t", read_only=True)

    assert report.ok
    assert _statuses(report)["create"] == "skipped"
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("url", ["ftp://host/t", "", "s3://user:hunter2-secret@bucket/t"])
def test_a_url_that_cannot_hold_a_table(url: str) -> None:
    """The finding is there, the rest is left out, and a secret in the URL is not repeated."""
    report = strandline.doctor(url)

    assert not report.ok
    assert _statuses(report) == {"libraries": "ok", "url": "failed"}
    assert report.url is None
    assert "hunter2" not in str(report)


@pytest.mark.s3
def test_a_store_that_cannot_be_reached(s3_bucket: S3Bucket) -> None:
    """A bucket that is not there: one failure, and no guesses about the rest."""
    report = strandline.doctor("s3://no-such-bucket-here/t", s3_bucket.storage_options)

    assert not report.ok
    assert _statuses(report) == {
        "libraries": "ok",
        "url": "ok",
        "reach": "failed",
        "create": "skipped",
        "clock": "skipped",
        "table": "skipped",
    }
    assert s3_bucket.storage_options["secret"] not in str(report) + str(report.to_json())


def test_a_store_that_ignores_the_condition_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[C1] Where two creates of one name both win, commits would be lost."""

    def overwrite(self: local.LocalStorage, path: str, data: bytes, **_: object) -> Put:
        place = Path(self.url, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return Put.CREATED

    monkeypatch.setattr(local.LocalStorage, "put_if_absent", overwrite)

    report = strandline.doctor(tmp_path / "t")

    assert not report.ok
    assert _statuses(report)["create"] == "failed"
    assert "ignores conditional writes" in _message(report, "create")


@pytest.mark.parametrize(("shift", "word"), [(LOCAL_HOUR_MS, "behind"), (-LOCAL_HOUR_MS, "ahead")])
def test_clocks_that_disagree_are_found(tmp_path: Path, shift: int, word: str) -> None:
    """[X1] Expiry goes by the store's clock."""

    def now_ms() -> int:
        return time.time_ns() // 1_000_000 + shift

    report = strandline.doctor(tmp_path / "t", now_ms=now_ms)

    assert _statuses(report)["clock"] == "failed"
    assert word in _message(report, "clock")


def test_a_damaged_manifest_is_a_finding(tmp_path: Path) -> None:
    """[X4] The table check reads the head as any reader would."""
    strandline.create_table(tmp_path / "t", {"n": "int64"})
    (tmp_path / "t" / paths.manifest_path(1)).write_bytes(b"torn")

    report = strandline.doctor(tmp_path / "t")

    assert _statuses(report)["table"] == "failed"
    assert "LZ4" in _message(report, "table")
    assert _statuses(report)["create"] == "ok"
