"""What callers pass, checked before anything happens."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING

from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


def check_text(what: str, given: object, most_bytes: int) -> str | None:
    """Text of a bounded length, or None."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            if 0 < len(given.encode()) <= most_bytes:
                return given
        except UnicodeEncodeError:
            pass
    raise InvalidInput(f"{what} must be text of 1 to {most_bytes} bytes")


def check_count(what: str, given: object) -> int | None:
    """A number of 0 or more, or None."""
    if given is None or (type(given) is int and 0 <= given <= INT64_MAX):
        return given
    raise InvalidInput(f"{what} must be an integer of 0 or more, not {given!r}")


def check_names(what: str, given: object) -> tuple[str, ...]:
    """A list of names; one string is a mistake, though it is a sequence of letters."""
    if isinstance(given, str):
        raise InvalidInput(f"{what} is a list of names, not one string")
    if not isinstance(given, Iterable):
        raise InvalidInput(f"{what} is a list of names, not {type(given).__name__}")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(f"{what} is a list of names, and {name!r} is not text")
    return names


def keywords_of(function: Callable[..., object]) -> set[str]:
    """The arguments that a function takes by name only."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_options(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that do not exist, and say which ones do."""
    names = sorted(known)
    for name in given:
        if name not in names:
            import difflib  # noqa: PLC0415 - only for those who mistyped

            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise InvalidInput(f"{what} has no option {name!r}{hint} It has {', '.join(names)}.")
