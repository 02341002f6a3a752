"""Random lives of a stream table against a plain model of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.streams import log_files, open_logs
from strandline.tableformat.storage import open_storage
from strandline.tableformat.windows import MINUTE_MS
from tests.streams.rigs import NOW, new_stream, pairs, reopened, row
from tests.tables import Script, memory_url

TTL_MS = 3 * MINUTE_MS
USERS = ("alice", "Bob/../x")
users = st.sampled_from(USERS)
ids = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(
        st.just("put"), users, st.lists(st.tuples(ids, st.integers(-4, 1)), min_size=1, max_size=4)
    ),
    st.tuples(st.just("delete"), users, st.lists(ids, max_size=3)),
    st.tuples(st.sampled_from(["flush", "reopen", "expire", "other"])),
    st.tuples(st.just("wait"), st.integers(1, 90_000)),
)


class Model:
    """Rows as (position, user, window, id, x, ts); a delete ends what stands before it."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, int, int]] = []

    def put(self, user: str, name: str, x: int, ts: int) -> None:
        self.rows.append((user, name, x, ts))

    def delete(self, user: str, names: list[str], floor: int) -> None:
        first_window = floor - floor % MINUTE_MS
        self.rows = [
            r for r in self.rows if not (r[0] == user and r[1] in names and r[3] >= first_window)
        ]

    def alive(self, user: str, floor: int, start: int, end: int) -> list[tuple[str, int]]:
        newest: dict[str, tuple[int, int, int]] = {}
        for position, (owner, name, x, ts) in enumerate(self.rows):
            if owner == user and max(floor, start) <= ts <= end:
                newest[name] = max(newest.get(name, (-1, -1, 0)), (ts, position, x))
        return [(n, x) for _, _, x, n in sorted((ts, p, x, n) for n, (ts, p, x) in newest.items())]


@pytest.mark.parametrize("kind", ["memory", "local"])
@settings(max_examples=60)
@given(story=st.lists(steps, max_size=25))
def test_a_stream_table_does_what_a_plain_model_does(kind: str, story: list[Any]) -> None:
    """[K5] [K6] [K7] After every step, every user's rows and ranges are those of the model."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "MAX_OBJECTS", 3)
        patch.setattr(open_logs, "BUFFER_BYTES", 200)
        patch.setattr(open_logs, "MAX_OPEN", 2)
        storage = open_storage(memory_url() if kind == "memory" else Path(folder) / "t")
        script = Script(now=NOW)
        model = Model()
        table = new_stream(storage, script, ttl="3m")
        for number, step in enumerate(story):
            floor = script.now - TTL_MS
            if step[0] == "put":
                rows = [row(name, number, script.now + m * 50_000) for name, m in step[2]]
                done = table.put(step[1], rows)
                for given in rows:
                    ts = min(given["at"], script.now)
                    if ts >= floor:
                        model.put(step[1], given["id"], number, ts)
                assert done.rows + done.dropped == len(rows)
            elif step[0] == "delete":
                table.delete(step[1], step[2])
                model.delete(step[1], step[2], floor)
            elif step[0] == "wait":
                script.now += step[1]
            elif step[0] == "reopen":
                table.close()
                table = reopened(storage, script)
            elif step[0] == "other":
                table.flush()
                table = reopened(storage, script)  # a second process goes on beside the first
            else:
                getattr(table, step[0])(*([script.now] if step[0] == "expire" else []))
            _compare(table, model, script.now)


def _compare(table: Any, model: Model, now: int) -> None:
    floor = now - TTL_MS
    for user in USERS:
        expected = model.alive(user, floor, 0, 2**60)
        assert pairs(table.range(user)) == expected
        assert pairs(table.latest(user)) == expected[::-1]
        assert pairs(table.latest(user, limit=1)) == expected[::-1][:1]
        start, end = now - 70_000, now - 10_000
        assert pairs(table.range(user, start, end)) == model.alive(user, floor, start, end)
