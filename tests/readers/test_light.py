"""What reading loads into a process: lookups must not wait for libraries they do not need."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import strandline
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from pathlib import Path

_CHILD = """
import json, sys
import strandline
table = strandline.open_table(sys.argv[1])
answers = []
for text in (
    None,
    "user = 'user-3' AND n IN (3, 10, 17) AND amount < 4.25 AND ts > '2020-01-01T00:00:00Z'",
    "user LIKE 'user-%' AND NOT amount IN (0.0, 1.0) OR n IS NULL",
    "price > 1.5 OR day = '2024-01-01' OR blob = X'00' OR flag",
    "n < 0",
    "_seq > 3 AND _ts > 0",
):
    scan = table.scan(columns=["n", "user", "_seq", "_ts", "_window"], filter=text)
    answers.append([scan.to_arrow().num_rows, sum(1 for _ in scan.to_batches()), scan.count()])
heavy = [name for name in ("pandas", "pyarrow.dataset") if name in sys.modules]
print(json.dumps([answers, heavy]))
"""


def test_scans_with_filters_load_no_pandas(tmp_path: Path) -> None:
    """[X3] pyarrow would import it at the first scalar, which takes longer than most lookups."""
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    table.append(events(0, 20))
    table.evolve(add={"price": "decimal(8,2)", "day": "date", "blob": "binary", "flag": "bool"})
    table.append(events(20, 20))
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers, heavy = json.loads(done.stdout)
    assert [rows for rows, _, _ in answers] == [40, 2, 38, 0, 0, 36]
    assert all(rows == count for rows, _, count in answers)
    assert heavy == []
