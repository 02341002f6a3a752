"""The tests of this package can fail: bugs that others have shipped are planted, each is found."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from strandline.maintenance import expire, grace, reachability, users_vacuum, vacuum
from strandline.maintenance.removing import Removed, remove_paths
from strandline.tableformat import expiry, retention
from strandline.tableformat.errors import MissingFile
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
    patch.setattr(expire, "_allowed_share", lambda *_: 1.0)


def _does_not_verify(patch: Patch) -> None:
    def remove(storage: Any, prefix: str, *, dry_run: bool) -> Any:
        del dry_run
        found = [path for path, _ in storage.walk(f"{prefix}/")]
        storage.delete(found)
        return Removed(len(found))

    patch.setattr("strandline.maintenance.expire.remove_prefix", remove)


def _restores_what_is_hidden(patch: Patch) -> None:
    patch.setattr(retention, "without_hidden", lambda draft: draft)


def _no_files_floor(patch: Patch) -> None:
    patch.setattr(vacuum, "RaiseFilesFloor", lambda _: RaiseFilesFloor(0))


def _ignores_tags(patch: Patch) -> None:
    patch.setattr(Lifecycle, "keeps", lambda self, version: version >= self.oldest_version)


def _opens_on_damage(patch: Patch) -> None:
    patch.setattr(vacuum, "reachable", lambda _, head, __: (set(), head))


def _removes_young_manifests(patch: Patch) -> None:
    patch.setattr(vacuum, "MANIFEST_MIN_AGE_MS", 0)


def _drops_without_a_second_look(patch: Patch) -> None:
    patch.setattr(retention, "seems_empty", lambda _: True)


def _vacuums_by_todays_floor(patch: Patch) -> None:
    def today(_: Any, head: Any, __: int) -> grace.Settled:
        found = head.manifest
        return grace.Settled(found.version, found.floor_ts, found.trim_seq, found.lifecycle)

    patch.setattr(vacuum, "settled", today)


def _gives_up_without_grace(patch: Patch) -> None:
    patch.setattr(grace.Settled, "keeps", lambda self, version: version >= self.version)


def _trusts_one_clock(patch: Patch) -> None:
    patch.setattr(grace, "_clocks", lambda chain: (chain.storage.clock_ms(),) * 2)


def _does_not_look_again(patch: Patch) -> None:
    patch.setattr(vacuum, "remove_verified", remove_paths)


def _reads_before_it_lists(patch: Patch) -> None:
    """Files that are committed between the two are taken for orphans."""
    right = vacuum.vacuum

    def hasty(chain: Any, head: Any, **options: Any) -> Any:
        needed, _ = reachability.reachable(chain, head, grace.Settled(head.manifest.version))
        listed = {path for path, _ in chain.storage.walk("") if path.startswith("w")}
        remove_paths(chain.storage, sorted(listed - needed), "nobody needs it")
        return right(chain, head, **options)

    patch.setattr(users_vacuum, "vacuum", hasty)


def _forgets_a_kind(patch: Patch) -> None:
    patch.delitem(reachability.KINDS, "document_page")


def _keeps_no_version(patch: Patch) -> None:
    patch.setattr(retention, "_check_kept", lambda *_: None)


def _trim_point_falls(patch: Patch) -> None:
    def trim(draft: Any, action: Any) -> Any:
        return retention.replace(draft, trim_seq=action.seq)

    patch.setattr(retention, "_trim", trim)


def _takes_open_files_by_age(patch: Patch) -> None:
    patch.setattr(vacuum, "_garbage", lambda listed, needed, _: ([*set(listed) - needed], 0))


PLANTED: list[tuple[Callable[[Patch], None], Callable[[], None], str]] = [
    (
        _no_grace,
        test_expire.test_rows_of_expired_windows_are_hidden_at_once_and_removed_after_the_grace,
        "(3, 3, 3)",
    ),
    (
        _trusts_the_committers_clock,
        test_expire.test_a_commit_that_landed_late_has_its_full_grace,
        "report.prefixes_removed == ()",
    ),
    (
        _floor_falls,
        test_expire.test_a_clock_that_jumps_back_lowers_no_floor_and_shortens_no_grace,
        "table.expire().floor_ts == floor",
    ),
    (
        _believes_any_clock,
        lambda: test_expire.test_clocks_that_contradict_each_other_cannot_empty_a_table(YEARS),
        "DID NOT RAISE ImplausibleExpiry",
    ),
    (
        _does_not_verify,
        test_expire.test_a_deletion_that_did_not_happen_is_said,
        "DID NOT RAISE StorageFailed",
    ),
    (
        _restores_what_is_hidden,
        test_versions.test_rollback_brings_back_nothing_that_has_expired_or_was_trimmed,
        "len(table.manifest.segments) == 5",
    ),
    (
        _no_files_floor,
        test_vacuum.test_a_writer_that_stalled_over_a_vacuum_writes_its_files_again,
        "sorted(numbers(table)) == [0, 1, 50, 60]",
    ),
    (
        _ignores_tags,
        test_vacuum.test_versions_go_by_the_time_since_they_were_replaced,
        "left == {2, 5, 6, 7}",
    ),
    (
        _opens_on_damage,
        test_vacuum.test_vacuum_fails_closed_on_a_version_it_cannot_read,
        "DID NOT RAISE CorruptTable",
    ),
    (
        _removes_young_manifests,
        test_vacuum.test_retention_of_nothing_leaves_the_table_readable,
        "max(world.files(paths.MANIFESTS)) == paths.manifest_path(1)",
    ),
    (
        _drops_without_a_second_look,
        test_versions.test_an_empty_table_is_dropped_only_if_it_is_still_empty,
        "DID NOT RAISE CommitConflict",
    ),
    (
        _vacuums_by_todays_floor,
        lambda: test_vacuum.test_a_reader_has_its_grace_from_when_its_rows_were_hidden("trim"),
        "sorted(numbers(reader)) == expected",
    ),
    (
        _gives_up_without_grace,
        lambda: test_vacuum.test_a_reader_has_its_grace_from_when_its_version_was_given_up(
            "tag", "purge"
        ),
        "sorted(numbers(reader)) == [0, 1]",
    ),
    (
        _gives_up_without_grace,
        test_vacuum.test_what_was_kept_a_grace_ago_and_cannot_be_told_stays,
        "files == set(segments_of(world))",
    ),
    (
        _trusts_one_clock,
        test_vacuum.test_one_clock_that_jumps_takes_nobodys_grace,
        "sorted(numbers(reader)) == list(range(10))",
    ),
    (
        _does_not_look_again,
        test_vacuum.test_a_deletion_that_vacuum_was_only_told_of_is_said,
        "DID NOT RAISE StorageFailed",
    ),
    (
        _reads_before_it_lists,
        test_vacuum.test_the_store_is_listed_before_the_newest_version_is_read,
        "sorted(numbers(table)) == [0, 1, 70, 71]",
    ),
    (
        _forgets_a_kind,
        test_vacuum.test_every_kind_of_object_is_registered,
        "if name is None] == []",
    ),
    (
        _keeps_no_version,
        test_vacuum.test_versions_go_by_the_time_since_they_were_replaced,
        "DID NOT RAISE VersionNotFound",
    ),
    (
        _trim_point_falls,
        test_versions.test_trimmed_rows_are_hidden_at_once_and_for_ever,
        "len(table.manifest.segments) == 2",
    ),
    (
        _takes_open_files_by_age,
        test_vacuum.test_what_is_not_ours_is_left_alone,
        "unknown == len(foreign)",
    ),
]


def caught_by(test: Callable[[], None]) -> str:
    """The line of a test that fails, or what was not refused there. Other errors are no catch."""
    try:
        test()
    except pytest.fail.Exception as missing:
        return str(missing)
    except (AssertionError, MissingFile) as broken:
        frames = traceback.extract_tb(broken.__traceback__)
        return next(f.line or "" for f in reversed(frames) if "/test_" in f.filename)
    return "nothing"


@pytest.mark.parametrize(
    ("plant", "test", "check"), PLANTED, ids=[plant.__name__ for plant, _, _ in PLANTED]
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], test: Callable[[], None], check: str, monkeypatch: Patch
) -> None:
    """[C8] [X1] The check that guards the rule fails when the rule is broken."""
    test()
    plant(monkeypatch)

    assert check in caught_by(test).replace("'", "")


def test_at_least_fifteen_bugs_are_planted() -> None:
    """Issue 6 asks for so many."""
    assert len(PLANTED) >= 15
