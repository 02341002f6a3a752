"""Runs that another process rewrites and this one commits."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import TYPE_CHECKING

import strandline
from strandline.place import TablePlace
from strandline.writers.rewrite_tasks import commit_task, plan_tasks
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.writers.rewriting import Rewritten


def work(task: bytes) -> bytes:
    """What an executor does: everything it needs came with the task."""
    made: Rewritten = pickle.loads(task).run()
    return pickle.dumps(made)


def test_runs_are_rewritten_elsewhere_and_committed_here(tmp_path: Path) -> None:
    """[C5] [M7] Tasks are plain values; of one that ran twice only one result is committed."""
    url = str(tmp_path / "table")
    table = strandline.create_table(url, SCHEMA, time_column="ts", ttl="1d")
    for first in range(0, 6000, 500):
        table.append(events(first, 500))
    before = table.scan([*SCHEMA.names, "_seq", "_ts"]).to_arrow()
    place = TablePlace(table)
    tasks = plan_tasks(place, url)
    assert len(tasks) == 2

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        results = pool.map(work, [pickle.dumps(task) for task in (*tasks, tasks[0])])

    made = [pickle.loads(result) for result in results]
    assert [commit_task(place, t, m) for t, m in zip((*tasks, tasks[0]), made, strict=True)] == [
        True,
        True,
        False,
    ]
    assert table.files().num_rows == 2
    assert table.scan([*SCHEMA.names, "_seq", "_ts"]).to_arrow().equals(before)
    assert not any((tmp_path / "table" / path).exists() for path in made[2].files)
    assert table.verify(deep=True).ok
