"""Whether there is a Java that Spark can run on, asked before Spark fails in its own words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from strandline.tableformat.errors import StrandlineError

LEAST_JAVA: Final = 17
_HINT: Final = (
    f"Spark 4 needs Java {LEAST_JAVA} or newer: install one (for example openjdk-17-jre-headless) "
    "and put `java` on PATH, or set JAVA_HOME. Everything but Spark works without it."
)


class JavaMissing(StrandlineError):
    """There is no Java that Spark can run on; the rest of the library needs none."""


def require_java() -> int:
    """The major version of the Java that Spark will use, or an error that says what to install."""
    command = _command()
    if command is None:
        raise JavaMissing(f"no Java was found. {_HINT}")
    try:
        # Java prints its version to standard error, since always.
        answer = subprocess.run(  # noqa: S603 - the program is the user's own java
            [command, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{command} does not start ({error}). {_HINT}") from None
    major = _major(answer.stderr + answer.stdout)
    if major is None:
        raise JavaMissing(f"{command} does not tell its version. {_HINT}")
    if major < LEAST_JAVA:
        raise JavaMissing(f"{command} is Java {major}. {_HINT}")
    return major


def _command() -> str | None:
    """Where Spark's own launcher looks: JAVA_HOME first, then PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def _major(text: str) -> int | None:
    """`17.0.15` is 17; until Java 8 the numbers were `1.8.0_392`."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
