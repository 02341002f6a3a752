"""Progress bars for long work: on a terminal only, and drawn by rich where it is installed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Told = Callable[[str, int, int], None]
    """A step's name, how much of it is done, and how much there is."""


@contextmanager
def bars(*, quiet: bool) -> Iterator[Told]:
    """Something to tell of progress; it says nothing where nobody is looking."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
    elif find_spec("rich") is None:
        yield _plain
    else:
        with _rich() as told:
            yield told


def _plain(step: str, done: int, of: int) -> None:
    width = 30 * done // max(1, of)
    end = "\n" if done >= of else ""
    print(f"\r[{'#' * width:<30}] {step} {done}/{of}", end=end, file=sys.stderr, flush=True)


@contextmanager
def _rich() -> Iterator[Told]:
    from rich.console import Console  # noqa: PLC0415 - an optional dependency
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True)) as drawn:
        lines: dict[str, Any] = {}

        def told(step: str, done: int, of: int) -> None:
            if step not in lines:
                lines[step] = drawn.add_task(escape(step), total=max(1, of))
            finished = done if of else 1
            drawn.update(lines[step], completed=finished, total=max(1, of))

        yield told
