"""Bugs of whatever ends something, planted where only a fault shows them: each is found by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.catalog import commit
from strandline.catalog.chain import Chain
from strandline.maintenance import expire, vacuum
from strandline.maintenance.removing import remove_prefix
from strandline.tableformat import expiry, retention
from strandline.tableformat.stores import memory
from tests.faults.harness import Case, every_case, prepare, run_case
from tests.faults.ledger import BrokenPromise
from tests.faults.lifecycle_scenarios import EXPIRE, ROLLBACK, TRIM, VACUUM, VERSIONS
from tests.faults.scenarios import APPEND, CONCURRENT, ZOMBIE, Scenario

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def prepared() -> None:
    """Tables that scenarios begin with are made before a bug is planted."""
    for scenario in (APPEND, CONCURRENT, ZOMBIE, EXPIRE, ROLLBACK, TRIM, VACUUM, VERSIONS):
        prepare(scenario, 0)


def found(scenario: Scenario) -> str:
    """The first broken promise among the turns of another process and all single faults."""
    turns = [Case(scenario, other_at=turn) for turn in range(12)] if scenario.other else []
    try:
        for case in (*turns, *every_case(scenario)):
            run_case(case)
    except BrokenPromise as broken:
        return str(broken)
    raise AssertionError("no case found the planted bug")


def test_deleting_before_the_floor_is_committed_is_found(monkeypatch: Patch) -> None:
    """[X1] A crash in between, and the head lists files that are gone."""
    right = expire.commit

    def late(chain: Any, head: Any, change: Any, **options: Any) -> Any:
        floor = change.actions[0].floor_ts
        for window in expiry.expired_prefixes(chain.storage.folders(""), floor):
            remove_prefix(chain.storage, window.prefix)
        return right(chain, head, change, **options)

    monkeypatch.setattr(expire, "commit", late)
    assert "listed and missing" in found(EXPIRE)


def test_dropping_the_condition_is_found(monkeypatch: Patch) -> None:
    """[C1] A create that overwrites takes another's commit away."""
    right = memory._Shelf.put  # noqa: SLF001 - the bug is planted inside

    def overwrite(self: Any, key: str, data: bytes, now_ms: int) -> bool:
        if not right(self, key, data, now_ms) and "/probe/" not in key:
            self.objects[key] = data
            return True
        return self.objects[key] == data

    monkeypatch.setattr(memory._Shelf, "put", overwrite)  # noqa: SLF001
    assert "has another parent" in found(CONCURRENT)


def test_acknowledging_before_the_write_is_found(monkeypatch: Patch) -> None:
    """[C1] [E15] What is only on its way when the process ends was not done."""
    monkeypatch.setattr(commit._Attempt, "create_version", lambda *_: None)  # noqa: SLF001
    assert "(done) is lost" in found(APPEND)


def test_ignoring_the_marker_is_found(monkeypatch: Patch) -> None:
    """[GC-4] A version below the marker is no commit, though nobody else has it."""
    monkeypatch.setattr(Chain, "largest_gc_marker", lambda _: 0)
    assert "(done) is lost" in found(ZOMBIE)


def test_removing_manifests_before_the_marker_is_found(monkeypatch: Patch) -> None:
    """[GC-1] A crash in between, and the chain has a gap that nothing explains."""
    right = vacuum.remove_versions

    def eager(chain: Any, head: Any, before: Any, *, dry_run: bool) -> Any:
        given_up = range(1, head.manifest.lifecycle.oldest_version)
        chain.storage.delete([vacuum.paths.manifest_path(v) for v in given_up])
        return right(chain, head, before, dry_run=dry_run)

    monkeypatch.setattr(vacuum, "remove_versions", eager)
    assert "versions have gaps" in found(VERSIONS)


def test_removing_versions_before_they_are_given_up_is_found(monkeypatch: Patch) -> None:
    """[TAG-4] The commit comes first; who reads a version until then finds it."""
    right = vacuum.commit

    def late(chain: Any, head: Any, change: Any, **options: Any) -> Any:
        below = getattr(change.actions[0], "below", 0)
        chain.storage.delete([vacuum.paths.manifest_path(v) for v in range(1, below)])
        return right(chain, head, change, **options)

    monkeypatch.setattr(vacuum, "commit", late)
    assert "versions have gaps" in found(VERSIONS)


def test_removing_what_an_older_version_needs_is_found(monkeypatch: Patch) -> None:
    """[C8] [VAC-2] The newest version is not the only one that is kept."""
    right = vacuum.reachable

    def newest_only(chain: Any, head: Any, settled: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(
                "strandline.maintenance.reachability.listed_versions",
                lambda _: [head.manifest.version],
            )
            kept = replace(head.manifest.lifecycle, oldest_version=head.manifest.version)
            only = replace(head, manifest=replace(head.manifest, lifecycle=kept))
            return right(chain, only, settled)[0], head

    monkeypatch.setattr(vacuum, "reachable", newest_only)
    assert "listed and missing" in found(VACUUM)


def test_giving_numbers_twice_after_a_rollback_is_found(monkeypatch: Patch) -> None:
    """[C13] [RBK-1] The tail does not go back with the rows."""
    right = retention._rollback  # noqa: SLF001

    def reset(draft: Any, action: Any) -> Any:
        made = right(draft, action)
        return replace(made, next_seq=action.rows, last_ts=draft.last_ts, deleted_rows=0)

    monkeypatch.setattr(retention, "_rollback", reset)
    assert "history.rows: -4" in found(ROLLBACK)


def test_a_trim_point_that_falls_is_found(monkeypatch: Patch) -> None:
    """[VIS-2] [TRM-1] Whatever has been hidden stays hidden."""

    def trim(draft: Any, action: Any) -> Any:
        return replace(draft, trim_seq=0 if draft.trim_seq else action.seq)

    monkeypatch.setattr(retention, "_trim", trim)
    assert "the trim point fell" in found(TRIM)
