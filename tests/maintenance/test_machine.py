"""Random sequences of all operations against a plain model: in memory, on disk, on S3."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from strandline.tableformat.storage import Storage, open_storage
from tests.maintenance.machine import LifecycleMachine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import S3Bucket


def run(examples: int, steps: int, new_store: Callable[[], Storage] | None = None) -> None:
    """So many random lives of a table."""

    class Machine(LifecycleMachine):
        pass

    if new_store is not None:
        Machine.new_store = staticmethod(new_store)  # type: ignore[assignment]
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def places(root: str, options: dict[str, object] | None = None) -> Callable[[], Storage]:
    """A new place below a root for each life."""
    numbers = itertools.count()
    return lambda: open_storage(f"{root}/{next(numbers)}", options)


def test_a_few_lives_in_memory() -> None:
    """[C1] [C8] [C9] [C13] [X1] [O4] The table shows what the model shows after every step."""
    run(80, 30)


def test_a_few_lives_on_disk(tmp_path: Path) -> None:
    """[C1] [C8] The same with the rules for disks, and real files."""
    run(20, 25, places(str(tmp_path)))


@pytest.mark.proof
def test_many_lives_in_memory() -> None:
    """[C1] [C8] [C9] [C13] [X1] [O4] The same at length."""
    run(400, 50)


@pytest.mark.proof
def test_many_lives_on_disk(tmp_path: Path) -> None:
    """[C1] [C8] The same at length."""
    run(60, 50, places(str(tmp_path)))


@pytest.mark.proof
@pytest.mark.s3
def test_lives_on_s3(s3_bucket: S3Bucket) -> None:
    """[C1] [C8] The same on an object store."""
    run(25, 30, places(s3_bucket.url, s3_bucket.storage_options))
