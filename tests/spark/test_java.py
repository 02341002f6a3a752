"""A missing or old Java is found before Spark fails in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strandline.spark import JavaMissing, java

if TYPE_CHECKING:
    from pathlib import Path


def _fake_java(folder: Path, version: str) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_a_new_enough_java_is_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int
) -> None:
    """Java 17 and everything after it."""
    _fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java.require_java() == major


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_an_old_java_is_refused_by_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int
) -> None:
    """The error names what was found and what to install."""
    _fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaMissing, match=f"is Java {major}. Spark 4 needs Java 17"):
        java.require_java()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither JAVA_HOME nor PATH: the hint says what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="no Java was found"):
        java.require_java()

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing, match="does not start"):
        java.require_java()
