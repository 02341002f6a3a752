"""LIKE patterns: `%` is any text, `_` any one character, a backslash takes the next one literally.

The backslash may only stand before `%`, `_` or another backslash (Spark's rule): elsewhere it is
nearly always a Windows path or a regular expression, and guessing would give silent non-matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.tableformat.errors import InvalidInput

ANY: Final = "%"
ONE: Final = "_"
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern taken apart: `literals[0] wildcards[0] literals[1] … literals[-1]`."""

    literals: tuple[str, ...]
    wildcards: tuple[str, ...]

    @property
    def prefix(self) -> str:
        """What every match begins with."""
        return self.literals[0]

    @property
    def is_exact(self) -> bool:
        """No wildcard: the pattern matches one text only."""
        return not self.wildcards

    @property
    def is_prefix(self) -> bool:
        """The pattern is a prefix and `%`: it matches all that begins so, and nothing else."""
        return self.wildcards == (ANY,) and not self.literals[1]


def parse_like(pattern: str) -> LikePattern:
    """Take a LIKE pattern apart, or say what is wrong with it."""
    literals, wildcards, current = [], [], ""
    characters = iter(pattern)
    for character in characters:
        if character in (ANY, ONE):
            literals.append(current)
            wildcards.append(character)
            current = ""
        elif character == "\\":
            escaped = next(characters, "")
            if escaped not in ("%", "_", "\\"):
                raise InvalidInput(
                    f"the LIKE pattern {pattern!r} has a backslash that stands before neither "
                    "'%', '_' nor a backslash; double it to match a backslash"
                )
            current += escaped
        else:
            current += character
    return LikePattern((*literals, current), tuple(wildcards))


def after_prefix(prefix: str) -> str | None:
    """The least text greater than all that begin with `prefix`; None if nothing is greater."""
    while prefix:
        last = ord(prefix[-1])
        if last < _LAST_CODE_POINT:
            following = last + 1
            if following in _SURROGATES:
                following = _SURROGATES.stop
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None


def escaped(text: str) -> str:
    """A pattern, or a part of one, that matches this text only."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


def pattern_text(pattern: LikePattern) -> str:
    """The pattern as `parse_like` reads it."""
    pieces = [escaped(pattern.literals[0])]
    for wildcard, literal in zip(pattern.wildcards, pattern.literals[1:], strict=True):
        pieces += (wildcard, escaped(literal))
    return "".join(pieces)
