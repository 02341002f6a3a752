"""Adapters from a writer's metrics hook to what programs measure with."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.tableformat.errors import StrandlineError
from strandline.writers.metrics import COMMIT_SECONDS, COUNTERS, GAUGES, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable


def opentelemetry(meter: Any = None) -> Callable[[str, float, dict[str, Any]], None]:
    """A hook for `table.writer(metrics=…)` that feeds OpenTelemetry.

    `meter`: from `opentelemetry.metrics.get_meter`; by default the global provider's.
    """
    if meter is None:
        meter = _global_meter()
    tell = {PREFIX + name: meter.create_counter(PREFIX + name).add for name in COUNTERS}
    tell |= {PREFIX + name: meter.create_gauge(PREFIX + name).set for name in GAUGES}
    name = PREFIX + COMMIT_SECONDS
    tell[name] = meter.create_histogram(name, unit="s").record

    def hook(name: str, value: float, attributes: dict[str, Any]) -> None:
        tell[name](value, attributes)

    return hook


def _global_meter() -> Any:
    try:
        metrics = import_module("opentelemetry.metrics")  # an optional dependency
    except ImportError:
        raise StrandlineError(
            "OpenTelemetry is not installed: pip install opentelemetry-api opentelemetry-sdk"
        ) from None
    return metrics.get_meter("strandline")
