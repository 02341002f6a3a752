"""Many processes and threads append at once: none is lost, none is doubled, none gives up."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from tests.tables import Place, events, memory_url

if TYPE_CHECKING:
    from pathlib import Path


def _append_many(url: str, options: dict[str, Any] | None, worker: int, batches: int) -> None:
    table = strandline.open_table(url, storage_options=options)
    for batch in range(batches):
        done = table.append(events(1000 * worker + batch * 10, 5))
        assert done.rows == 5


def _check(place: Place, workers: int, batches: int) -> None:
    rows = place.open().scan(columns=["_seq", "n"]).to_arrow()
    expected = {
        1000 * w + b * 10 + i for w in range(workers) for b in range(batches) for i in range(5)
    }
    assert rows.column("_seq").to_pylist() == list(range(5 * workers * batches))
    assert Counter(rows.column("n").to_pylist()) == Counter(expected)
    appends = [r for r in place.open().history() if r.operation == "append"]
    assert len(appends) == workers * batches


def _run(place: Place, workers: int, batches: int) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=_append_many, args=(place.url, place.storage_options, worker, batches)
        )
        for worker in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * workers


def test_eight_processes_on_a_disk(tmp_path: Path) -> None:
    """[C1, O1] 8 processes times 20 appends with defaults: 160 commits, dense sequence numbers."""
    place = Place(str(tmp_path / "t"))
    place.create()

    _run(place, 8, 20)

    _check(place, 8, 20)


@pytest.mark.s3
def test_four_processes_on_s3(s3_bucket: Any) -> None:
    """[C1, O1] 4 processes times 8 appends over the real protocol."""
    place = Place(s3_bucket.url, s3_bucket.storage_options)
    place.create()

    _run(place, 4, 8)

    _check(place, 4, 8)


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_threads_share_a_table(shared: bool) -> None:  # noqa: FBT001 - pytest passes it
    """[C1] A handle may be used from many threads."""
    place = Place(memory_url())
    table = place.create()
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        mine = table if shared else place.open()
        try:
            for batch in range(20):
                mine.append(events(1000 * worker + batch * 10, 5))
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    _check(place, 6, 20)


def test_a_retried_batch_from_many_processes_lands_once(tmp_path: Path) -> None:
    """[C1] The same keyed batches sent by every process at once."""
    place = Place(str(tmp_path / "t"))
    place.create()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append_same, args=(place.url, 10)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0] * 4
    assert place.open().scan(columns=["n"]).to_arrow().column("n").to_pylist() == list(range(50))


def _append_same(url: str, batches: int) -> None:
    table = strandline.open_table(url)
    for batch in range(batches):
        done = table.append(events(batch * 5, 5), writer_id="job", batch=batch)
        # A batch that others are past answers with the writer's newest result.
        assert done.duplicate or done.first_seq == batch * 5
