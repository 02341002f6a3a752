"""Tables with a primary key are cleaned up as all others are."""

from __future__ import annotations

import pytest

from strandline.maintenance.reachability import WALKED_FEATURES
from strandline.tableformat.manifest import READER_FEATURES, USER_SCOPED, WRITER_FEATURES
from strandline.tableformat.windows import DAY_MS, HOUR_MS
from tests.maintenance.aging import NOW, Aging, row


@pytest.mark.parametrize("feature", sorted(READER_FEATURES | WRITER_FEATURES))
def test_tables_with_every_feature_are_vacuumed(feature: str) -> None:
    """[X1] [C8] What this library can write it can also clean up."""
    walked = WALKED_FEATURES | {USER_SCOPED}
    assert feature in walked, f"nothing is ever removed from tables with {feature}"


def data_files(world: Aging) -> list[str]:
    """What lies in windows."""
    return [path for path in world.files() if path.startswith("w")]


def test_a_keyed_table_is_maintained_as_any_other() -> None:
    """[X1] [C4] Replaced files of a table with a primary key go after their grace."""
    world = Aging(primary_key=["n"])
    table = world.create()
    for n in range(12):
        table.append([row(NOW - n % 9 * HOUR_MS, n % 3)])
    table.delete(keys=[1])
    left = table.scan().to_arrow()
    before = data_files(world)

    table.compact()
    world.wait(8 * DAY_MS)  # versions are kept for seven days
    report = table.maintain()
    world.wait(2 * DAY_MS)  # and their files for those who had them open
    table.maintain()

    assert {"expire", "compact", "vacuum"} <= set(report.steps)
    assert len(data_files(world)) < len(before)
    assert table.scan().to_arrow() == left
    assert table.verify(deep=True).ok
