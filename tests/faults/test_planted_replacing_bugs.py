"""Bugs of compactions and deletes that would lose or double rows: each is planted, and found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from strandline.catalog import commit as commits
from strandline.catalog import locating
from strandline.tableformat import paths, replacing
from strandline.tableformat.errors import CommitConflict, CorruptTable, OutcomeUnclear
from strandline.tableformat.storage import Put
from strandline.writers import compacting, deleting, rewriting
from tests.faults.harness import Case, every_case, prepare, run_case
from tests.faults.ledger import BrokenPromise
from tests.faults.scenarios import COMPACT, CONCURRENT_COMPACT, DELETE, OVERWRITE

if TYPE_CHECKING:
    from tests.faults.scenarios import Scenario

Patch = pytest.MonkeyPatch
Search = locating._Search  # noqa: SLF001 - bugs are planted inside


@pytest.fixture(autouse=True)
def prepared() -> None:
    """Tables that scenarios begin with are made before a bug is planted."""
    for scenario in (COMPACT, CONCURRENT_COMPACT, DELETE, OVERWRITE):
        prepare(scenario, 0)


def found(scenario: Scenario) -> str:
    """The first broken promise among the turns of another process and single faults."""
    turns = [Case(scenario, other_at=turn) for turn in range(40)] if scenario.other else []
    faults = islice(every_case(scenario), 400)
    try:
        for case in (*turns, Case(scenario), *faults):
            run_case(case)
    except (BrokenPromise, CorruptTable) as broken:
        return str(broken)
    raise AssertionError("no case found the planted bug")


def unchecked(draft: Any, action: Any, committed_at: int) -> Any:
    """Put the new segments in, whatever has become of the old ones."""
    gone = set(action.inline)
    added = tuple(replacing._stamped(e, committed_at) for e in action.added)  # noqa: SLF001
    kept = tuple(entry for entry in draft.segments if entry.path not in gone)
    return replace(draft, segments=kept + added)


def test_not_looking_at_the_inputs_again_is_found(monkeypatch: Patch) -> None:
    """[M7] Of two compactors the second doubles every row."""
    monkeypatch.setattr(replacing, "replace_segments", unchecked)
    monkeypatch.setattr(Search, "missing", property(lambda _: set()))
    assert "rows of" in found(CONCURRENT_COMPACT)


def test_keeping_the_inputs_is_found(monkeypatch: Patch) -> None:
    """[M7] The new segments beside the old ones: every row comes twice."""

    def kept(draft: Any, action: Any, committed_at: int) -> Any:
        return unchecked(draft, replace(action, inline=()), committed_at)

    monkeypatch.setattr(replacing, "replace_segments", kept)
    assert "rows of" in found(CONCURRENT_COMPACT)


def test_removing_the_inputs_before_the_commit_is_found(monkeypatch: Patch) -> None:
    """[M7] A crash in between, and the only copy is gone."""
    right = rewriting.rewrite

    def eager(storage: Any, head: Any, inputs: Any, *rest: Any) -> Any:
        made = right(storage, head, inputs, *rest)
        storage.delete([entry.path for entry in inputs])
        return made

    monkeypatch.setattr(compacting, "rewrite", eager)
    assert "listed and missing" in found(COMPACT)


def test_removing_the_inputs_after_the_commit_is_found(monkeypatch: Patch) -> None:
    """[C2] [C8] Older versions refer to them: that is vacuum's business."""
    right = compacting._Compaction._commit  # noqa: SLF001

    def tidy(self: Any, run: Any, made: Any) -> bool:
        done = right(self, run, made)
        if done:
            self._chain.storage.delete([entry.path for entry in run.segments])
        return done

    monkeypatch.setattr(compacting._Compaction, "_commit", tidy)  # noqa: SLF001
    assert "listed and missing" in found(COMPACT)


def test_throwing_output_away_on_an_unclear_answer_is_found(monkeypatch: Patch) -> None:
    """[COM-2] The commit may have landed: its files are not ours to delete any more."""
    attempt = commits._Attempt  # noqa: SLF001 - the bug is planted inside

    def one_try(self: Any, version: int, data: bytes, pending: Any) -> Any:
        path = paths.manifest_path(version)
        try:
            outcome = self.chain.storage.put_if_absent(path, data, after=pending)
        except OutcomeUnclear as error:
            raise CommitConflict(f"taken for a failure: {error}") from None
        return None if outcome is Put.CREATED else self.chain.load(version)

    monkeypatch.setattr(attempt, "create_version", one_try)
    assert "listed and missing" in found(COMPACT)


def test_numbering_rows_anew_is_found(monkeypatch: Patch) -> None:
    """[O1] [COM-16] Rows of two batches are not one run, however they look."""
    right = rewriting.encode_segment

    def dense(rows: Any, *rest: Any, seqs: Any = None, **options: Any) -> Any:
        shifted = None if seqs is None else np.arange(seqs.min(), seqs.min() + len(seqs))
        return right(rows, *rest, seqs=shifted, **options)

    monkeypatch.setattr(rewriting, "encode_segment", dense)
    monkeypatch.setattr(rewriting, "_compare", lambda *_, **__: None)
    assert "sequence numbers are not" in found(COMPACT)


def test_wrong_numbers_are_noticed_before_the_commit(monkeypatch: Patch) -> None:
    """[M7] With the comparison in place, the same bug changes nothing."""
    right = rewriting.encode_segment

    def dense(rows: Any, *rest: Any, seqs: Any = None, **options: Any) -> Any:
        shifted = None if seqs is None else np.arange(seqs.min(), seqs.min() + len(seqs))
        return right(rows, *rest, seqs=shifted, **options)

    monkeypatch.setattr(rewriting, "encode_segment", dense)
    run_case(Case(COMPACT))


def test_losing_a_row_on_the_way_is_found(monkeypatch: Patch) -> None:
    """[COM-16] Counting on both sides of the commit stops it, whatever the rewrite believes."""
    monkeypatch.setattr(rewriting, "_by_number", lambda rows: rows.slice(1))
    monkeypatch.setattr(rewriting, "_compare", lambda *_, **__: None)
    monkeypatch.setattr(rewriting.Rewritten, "rows_dropped", property(lambda _: 0))
    run_case(Case(COMPACT))  # the row count refuses it

    def uncounted(draft: Any, action: Any, committed_at: int) -> Any:
        known = {"deleted_rows": action.deleted_rows}
        with suppress(CorruptTable):
            return right(draft, action, committed_at)
        return unchecked(draft, replace(action, **known), committed_at)

    right = replacing.replace_segments
    monkeypatch.setattr(replacing, "replace_segments", uncounted)
    assert "more rows than sequence numbers" in found(COMPACT)


def test_deleting_rows_that_do_not_match_is_found(monkeypatch: Patch) -> None:
    """[C4] [COM-14] A batch that was not named must not go."""
    right = deleting._Delete._bound  # noqa: SLF001 - what to delete

    def wider(self: Any, head: Any, end_seq: int) -> Any:
        del self
        other = deleting._Delete(None, deleting.col("batch") <= 3, None)  # type: ignore[arg-type]  # noqa: SLF001
        return right(other, head, end_seq)

    monkeypatch.setattr(deleting._Delete, "__init__", _init)  # noqa: SLF001
    monkeypatch.setattr(deleting._Delete, "_bound", wider)  # noqa: SLF001
    assert "sequence numbers are not" in found(DELETE)


_right_init = deleting._Delete.__init__  # noqa: SLF001


def _init(self: Any, place: Any, condition: Any, fence: Any) -> None:
    """A delete whose table does not matter."""
    if place is None:
        self._condition = condition
    else:
        _right_init(self, place, condition, fence)


def test_forgetting_pages_when_overwriting_is_found(monkeypatch: Patch) -> None:
    """[COM-15] Rows in pages stay visible."""

    def forgetful(draft: Any) -> Any:
        rows = sum(entry.row_count for entry in draft.segments)
        return replace(draft, segments=(), deleted_rows=draft.deleted_rows + rows)

    monkeypatch.setattr(replacing, "remove_all", forgetful)
    assert "(refused) is in the table" in found(OVERWRITE)
