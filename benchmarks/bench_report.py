"""Tables and verdicts on the terminal, in Markdown so that they can be kept."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def say(text: str = "") -> None:
    """One line of the report."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A Markdown table; the first column is text, the others are right-aligned."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    lines = [list(head), ["-" * width for width in widths], *cells]
    lines[1] = [cell if i == 0 else cell[:-1] + ":" for i, cell in enumerate(lines[1])]
    say()
    for line in lines:
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        say(f"| {' | '.join(padded)} |")
    say()


@dataclass(frozen=True)
class Verdict:
    """A target and whether it was met."""

    target: str
    measured: str
    met: bool


def verdicts(found: Sequence[Verdict]) -> bool:
    """Print targets; True if all were met."""
    table(
        ["target", "measured", "met"],
        [(v.target, v.measured, "yes" if v.met else "NO") for v in found],
    )
    return all(v.met for v in found)


def ms(seconds: float) -> str:
    """Milliseconds with two digits that matter."""
    return f"{seconds * 1e3:.2f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def median(values: Sequence[float]) -> float:
    """The middle one, or NaN of nothing."""
    return statistics.median(values) if values else float("nan")
