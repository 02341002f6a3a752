"""The tests of this package can fail: bugs that others have shipped are planted, each is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from strandline.maintenance import expire, vacuum
from strandline.tableformat import expiry, retention
from strandline.tableformat.lifecycle import Lifecycle
from strandline.tableformat.retention import RaiseFilesFloor
from strandline.tableformat.windows import DAY_MS
from tests.maintenance import test_expire, test_vacuum, test_versions

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch
YEARS = 10 * 365 * DAY_MS


def _no_grace(patch: Patch) -> None:
    patch.setattr(expiry, "removable_floor", lambda found, *_: (found.floor_ts, found.version))
    _trusts_the_committers_clock(patch)  # the second belt, which alone would save the day


def _trusts_the_committers_clock(patch: Patch) -> None:
    patch.setattr(expire, "_is_younger", lambda *_: False)


def _floor_falls(patch: Patch) -> None:
    def floor_for(config: Any, now_ms: int, _: int) -> int:
        return int(now_ms - config.ttl_ms)

    def raise_floor(draft: Any, action: Any) -> Any:
        return retention.replace(draft, floor_ts=action.floor_ts)

    patch.setattr(expiry, "floor_for", floor_for)
    patch.setattr(retention, "_raise_floor", raise_floor)


def _believes_any_clock(patch: Patch) -> None:
    patch.setattr(expire, "_check_plausible", lambda *_: None)


def _does_not_verify(patch: Patch) -> None:
    def remove(storage: Any, prefix: str, *, dry_run: bool) -> Any:
        del dry_run
        found = [path for path, _ in storage.walk(f"{prefix}/")]
        storage.delete(found)
        return expire.remove_prefix(storage, "w0-1", dry_run=True)

    patch.setattr("strandline.maintenance.expire.remove_prefix", remove)


def _restores_what_is_hidden(patch: Patch) -> None:
    patch.setattr(retention, "without_hidden", lambda draft: draft)


def _no_files_floor(patch: Patch) -> None:
    patch.setattr(vacuum, "RaiseFilesFloor", lambda _: RaiseFilesFloor(0))


def _ignores_tags(patch: Patch) -> None:
    patch.setattr(Lifecycle, "keeps", lambda self, version: version >= self.oldest_version)


def _opens_on_damage(patch: Patch) -> None:
    patch.setattr(vacuum, "reachable", lambda *_: set())


def _removes_young_manifests(patch: Patch) -> None:
    patch.setattr(vacuum, "MANIFEST_MIN_AGE_MS", 0)


def _drops_without_a_second_look(patch: Patch) -> None:
    patch.setattr(retention, "seems_empty", lambda _: True)


PLANTED: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (
        _no_grace,
        test_expire.test_rows_of_expired_windows_are_hidden_at_once_and_removed_after_the_grace,
    ),
    (
        _trusts_the_committers_clock,
        test_expire.test_a_commit_that_landed_late_has_its_full_grace,
    ),
    (
        _floor_falls,
        test_expire.test_a_clock_that_jumps_back_lowers_no_floor_and_shortens_no_grace,
    ),
    (
        _believes_any_clock,
        lambda: test_expire.test_clocks_that_contradict_each_other_cannot_empty_a_table(YEARS),
    ),
    (_does_not_verify, test_expire.test_a_deletion_that_did_not_happen_is_said),
    (
        _restores_what_is_hidden,
        test_versions.test_rollback_brings_back_nothing_that_has_expired_or_was_trimmed,
    ),
    (
        _no_files_floor,
        test_vacuum.test_a_writer_that_stalled_over_a_vacuum_writes_its_files_again,
    ),
    (_ignores_tags, test_vacuum.test_versions_go_by_the_time_since_they_were_replaced),
    (_opens_on_damage, test_vacuum.test_vacuum_fails_closed_on_a_version_it_cannot_read),
    (
        _removes_young_manifests,
        test_vacuum.test_retention_of_nothing_leaves_the_table_readable,
    ),
    (
        _drops_without_a_second_look,
        test_versions.test_an_empty_table_is_dropped_only_if_it_is_still_empty,
    ),
]


@pytest.mark.parametrize(("plant", "test"), PLANTED, ids=[p.__name__ for p, _ in PLANTED])
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], test: Callable[[], None], monkeypatch: Patch
) -> None:
    """[C8] [X1] The test that guards the rule fails when the rule is broken."""
    test()
    plant(monkeypatch)

    with pytest.raises((Exception, pytest.fail.Exception)):
        test()
