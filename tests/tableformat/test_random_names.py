"""Random names: of the right length, and never the same twice."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

from strandline.tableformat.random_names import random_hex

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

CHILDREN = 3


def _give_one(names: SimpleQueue[str]) -> None:
    names.put(random_hex(16))


def test_names_have_their_length_and_differ() -> None:
    """[C1] Also across portions of the pool, and when one name takes more than a portion."""
    names = [random_hex(16) for _ in range(1000)]

    assert {len(name) for name in names} == {32}
    assert len(set(names)) == len(names)
    assert len(random_hex(5000)) == 10_000
    assert random_hex(0) == ""


def test_a_forked_child_draws_its_own() -> None:
    """[C1] Two processes with the same name for two files would overwrite one another."""
    random_hex(1)
    fork = multiprocessing.get_context("fork")
    names: SimpleQueue[str] = fork.SimpleQueue()
    for _ in range(CHILDREN):
        child = fork.Process(target=_give_one, args=(names,))
        child.start()
        child.join()
    drawn = {names.get() for _ in range(CHILDREN)} | {random_hex(16)}

    assert len(drawn) == CHILDREN + 1
