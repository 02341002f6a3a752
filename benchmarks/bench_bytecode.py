"""Compiled modules are kept, as with an installed library: no benchmark measures the compiler."""

from __future__ import annotations

import os
import sys


def keep_bytecode() -> None:
    """Begin anew where the environment says that compiled modules are not to be kept."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - this very program
