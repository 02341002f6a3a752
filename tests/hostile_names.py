"""Names that stores, disks and SQL would like to take for something else."""

from __future__ import annotations

from typing import Final

NESTING: Final = ("A" * 124, "A" * 124 + "\n12345")
"""As an alias, the first has one component of 200 characters; the second begins with the same."""

HOSTILE: Final = [
    *("a", "A", "a-b", "a_b", "a.b", "a.", ".a", "a..b", "a b", "a/b", "a/", "a\\b", "a.log"),
    *("../x", "/", "//", "/etc/passwd", "...", "~", "~a", "!", "=", "=a", "*", "?", "-", "_"),
    *("con", "C:\\x", "c:", "s3://b/k", "%2e%2e", "\0", "\n", " ", "_strandline", "frames", "w0-1"),
    *("\u00e9", "e\u0301", "\u1e9e", "ss", "\u0130", "i", "\ufb00", "\u65e5\u672c\u8a9e"),
    *("x" * 100, "x" * 101, "x" * 512, "X" * 512, "\u00e9" * 256, "\U0001d4b3" * 128),
    *("y" * 118 + "Z", "y" * 118 + "Z" + "q" * 300),
    *NESTING,
]
"""All of these are allowed, and each is another name than the others."""

REFUSED: Final = ["", ".", "..", "x" * 513, "\u00e9" * 257, "\ud800"]
