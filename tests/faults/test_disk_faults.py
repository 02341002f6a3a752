"""The power goes at every single call to a disk, and what was acknowledged is there afterwards."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.faults.disk_harness import DiskCase, every_disk_case, run_disk_case
from tests.faults.scenarios import (
    APPEND,
    CLAMP,
    CONCURRENT,
    CONCURRENT_KEY,
    CREATE,
    CREATE_TWICE,
    EVOLVE,
    FLUSH,
    KEYED,
    RECOVER,
    RECOVERED_TWICE,
    ROLL,
    TAKEN_OVER,
    WIDE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.faults.scenarios import Scenario

ALONE = (CREATE, APPEND, WIDE, KEYED, EVOLVE, ROLL, FLUSH, RECOVER)
TOGETHER = (CREATE_TWICE, CONCURRENT, CONCURRENT_KEY, CLAMP, TAKEN_OVER, RECOVERED_TWICE)
SAMPLE = 30


def run_all(cases: Iterable[DiskCase]) -> int:
    """Run cases until one breaks a promise; gives their number."""
    count = 0
    for case in cases:
        run_disk_case(case)
        count += 1
    return count


@pytest.mark.parametrize("scenario", ALONE, ids=lambda scenario: scenario.name)
def test_a_sample_of_power_cuts_and_disk_errors(
    scenario: Scenario, report: Callable[[str], None]
) -> None:
    """[X5] [C1] [E15] Unsynced bytes and names are lost, kept, mixed or torn; promises are not."""
    cases = [*every_disk_case(scenario), *every_disk_case(scenario, lazy=True)]
    count = run_all(random.Random(scenario.name).sample(cases, SAMPLE))
    report(f"{scenario.name}: {count} of {len(cases)} disk cases")


@pytest.mark.parametrize("scenario", TOGETHER, ids=lambda scenario: scenario.name)
def test_another_process_commits_at_any_call_and_then_the_power_goes(scenario: Scenario) -> None:
    """[X5] [C1] What either process was told holds after the cut."""
    calls = run_disk_case(DiskCase(scenario))
    chosen = random.Random(scenario.name).sample(range(len(calls) + 1), SAMPLE // 2)
    run_all(DiskCase(scenario, other_at=number, seed=number) for number in chosen)


@pytest.mark.proof
@pytest.mark.parametrize("lazy", [False, True], ids=["at_once", "when_waited_for"])
@pytest.mark.parametrize("scenario", ALONE, ids=lambda scenario: scenario.name)
def test_the_power_goes_at_every_call(
    scenario: Scenario, report: Callable[[str], None], *, lazy: bool
) -> None:
    """[X5] [C1] [E15] Every call, every fault, every fate; mixed fates with several seeds."""
    count = run_all(every_disk_case(scenario, lazy=lazy, seeds=range(3)))
    report(f"{scenario.name}: {count} disk cases")


@pytest.mark.proof
@pytest.mark.parametrize("scenario", TOGETHER, ids=lambda scenario: scenario.name)
def test_the_power_goes_at_every_call_of_two_processes(
    scenario: Scenario, report: Callable[[str], None]
) -> None:
    """[X5] [C1] Every turn of the other process, with every seventh fault."""
    cases = [case for index, case in enumerate(every_disk_case(scenario)) if index % 7 == 0]
    count = run_all(cases)
    report(f"{scenario.name}: {count} disk cases of two processes")
