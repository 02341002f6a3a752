"""What a writer tells a program's metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import strandline
import strandline.metrics
from strandline.api import open_in
from strandline.tableformat.errors import StoreBusy
from strandline.tableformat.storage import open_storage
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, events, memory_url

if TYPE_CHECKING:
    from collections.abc import Callable


def _table() -> tuple[strandline.Table, WatchedStorage]:
    url = memory_url()
    strandline.create_table(url, SCHEMA, time_column="ts")
    store = WatchedStorage(open_storage(url))
    return open_in(store), store


def test_counters_add_up_and_gauges_end_at_rest() -> None:
    """[M5] Told after each flush: what was added since, and how things stand."""
    table, _ = _table()
    told: list[tuple[str, float, dict[str, Any]]] = []
    with table.writer(
        "p", ack="committed", wal=False, metrics=lambda *told_now: told.append(told_now)
    ) as writer:
        writer.append(events(0, 10))
        writer.append(events(10, 5))

    sums: Counter[str] = Counter()
    for name, value, _about in told:
        sums[name] += value  # type: ignore[assignment]  # a float is fine
    last = {name: value for name, value, _ in told}
    assert sums["strandline.writer.rows"] == 15
    assert sums["strandline.writer.commits"] == 2
    assert last["strandline.writer.queue_depth"] == 0
    assert last["strandline.writer.rows_pending"] == 0
    assert sum(name == "strandline.writer.commit_seconds" for name, _, _ in told) == 2
    assert all(about == {"table": table.url, "writer_id": "p"} for _, _, about in told)


def test_a_store_that_refuses_is_seen_before_it_recovers() -> None:
    """[E14] A failed flush is told too, so that an alarm does not wait for its end."""
    table, store = _table()
    refusals = 2
    told: list[tuple[str, float]] = []

    def hook(name: str, value: float, _: dict[str, Any]) -> None:
        told.append((name, value))

    def refuse(name: str, _: str) -> None:
        nonlocal refusals
        if name == "write_new" and refusals:
            refusals -= 1
            raise StoreBusy("slow down")

    with table.writer("p", ack="committed", wal=False, metrics=hook) as writer:
        store.before = refuse
        writer.append(events(0, 1))

    retries = [
        at for at, told_now in enumerate(told) if told_now == ("strandline.writer.retries", 1)
    ]
    rows = told.index(("strandline.writer.rows", 1))
    assert len(retries) == 2
    assert max(retries) < rows


def test_a_hook_that_fails_is_logged_once_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Measuring must not stop what it measures."""
    table, _ = _table()

    def hook(*_: Any) -> None:
        raise RuntimeError("no such gauge")

    with table.writer("p", ack="committed", wal=False, metrics=hook) as writer:
        for n in range(3):
            writer.append(events(n, 1))

    assert table.tail().next_seq == 3
    assert sum("metrics hook failed" in record.message for record in caplog.records) == 1
    with pytest.raises(strandline.InvalidInput, match="metrics is a function"):
        table.writer("p", wal=False, ack="committed", metrics=7)


class Meter:
    """The shape of an OpenTelemetry meter."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, float, dict[str, Any]]] = []

    def _instrument(self, kind: str, method: str, name: str) -> Any:
        def tell(_: Any, amount: float, attributes: dict[str, Any] | None = None) -> None:
            self.told.append((kind, name, amount, attributes or {}))

        return type(kind, (), {method: tell})()

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        del unit, description
        return self._instrument("counter", "add", name)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Any:
        del unit, description
        return self._instrument("gauge", "set", name)

    def create_histogram(self, name: str, unit: str = "", description: str = "") -> Any:
        del unit, description
        return self._instrument("histogram", "record", name)


def test_opentelemetry_gets_instruments_of_the_right_kind() -> None:
    """Counters add, gauges are set, seconds go to a histogram."""
    table, _ = _table()
    meter = Meter()
    with table.writer(
        "p", ack="committed", wal=False, metrics=strandline.metrics.opentelemetry(meter)
    ) as writer:
        writer.append(events(0, 4))

    kinds = {(kind, name) for kind, name, _, _ in meter.told}
    assert ("counter", "strandline.writer.rows") in kinds
    assert ("gauge", "strandline.writer.queue_depth") in kinds
    assert ("histogram", "strandline.writer.commit_seconds") in kinds
    assert ("counter", "strandline.writer.rows", 4, {"table": table.url, "writer_id": "p"}) in (
        meter.told
    )


def test_without_opentelemetry_the_adapter_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is an optional dependency."""
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    adapter: Callable[[], Any] = strandline.metrics.opentelemetry

    with pytest.raises(strandline.StrandlineError, match="pip install opentelemetry-api"):
        adapter()
