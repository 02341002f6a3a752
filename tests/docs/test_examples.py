"""What users are told to type works, and prints what they are told it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strandline

if TYPE_CHECKING:
    from tests.conftest import S3Bucket

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYTHING = "…"


def blocks(page: Path) -> list[tuple[str, str]]:
    """The page's code blocks, each with its language."""
    return BLOCK.findall(page.read_text())


def commands(block: str) -> list[tuple[str, list[str]]]:
    """A console block as commands, each with the lines it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def prints_as_told(told: list[str], printed: list[str]) -> bool:
    """Whether lines agree; `…` stands for anything, and alone on a line for any lines."""
    pattern = ""
    for line in told:
        if line == ANYTHING:
            pattern += r"(?:.*\n)*"
        else:
            words = (
                ".*".join(re.escape(part) for part in word.split(ANYTHING)) for word in line.split()
            )
            pattern += r"\s+".join(words) + r"\s*\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def _run(command: str) -> list[str]:
    """Run a command line of a page in a shell, and give back what it printed, errors too."""
    shown = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command,
        shell=True,
        env={**os.environ, **shown},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.splitlines()


def _replay(page: Path) -> None:
    """Do everything a page says, in its order, in the current folder."""
    names: dict[str, Any] = {"__name__": "page"}
    for language, code in blocks(page):
        if language == "python":
            exec(compile(code, str(page), "exec"), names)
        elif language == "console":
            for command, told in commands(code):
                if command.startswith("make "):
                    continue
                printed = _run(command)
                assert prints_as_told(told, printed), f"{command}\n" + "\n".join(printed)


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_example_of_the_docs_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page, from its first line to its last, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    _replay(page)


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.usefixtures("spark")
def test_every_example_of_the_readme_works(
    tmp_path: Path, s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README alone is enough, with Spark, and with S3 behind the name that it uses."""
    s3fs = pytest.importorskip("s3fs")
    store = s3fs.S3FileSystem(**s3_bucket.storage_options, skip_instance_cache=True)
    store.call_s3("create_bucket", Bucket="my-bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_bucket.endpoint)
    monkeypatch.chdir(tmp_path)

    _replay(ROOT / "README.md")


def test_the_comparison_is_loose_where_told_and_strict_elsewhere() -> None:
    """A page that is wrong must not pass."""
    assert prints_as_told(["a  b", "…", "n …", "x"], ["a b", "1", "2", "n 5 6", "x"])
    assert prints_as_told(["a (… bytes)"], ["a (17 bytes)"])
    assert not prints_as_told(["a b"], ["a c"])
    assert not prints_as_told(["a b"], ["a b", "more"])
    assert not prints_as_told(["a.b"], ["aXb"])


def test_every_link_between_pages_leads_somewhere() -> None:
    """Pages refer to files that exist."""
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    missing = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert missing == []


def test_every_test_that_the_readme_names_exists() -> None:
    """A promise without its proof is only a claim."""
    named = re.findall(r"tests/[\w/]+(?:\.py)?", (ROOT / "README.md").read_text())

    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_verb_is_documented() -> None:
    """What the command can do is on its page."""
    done = subprocess.run(
        [sys.executable, "-m", "strandline.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    verbs = re.findall(r"^    (\w+)", done.stdout, re.MULTILINE)

    assert len(verbs) >= 12
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "cli.md").read_text()
    assert [verb for verb in verbs if verb not in readme + page] == []


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_demo_answers(tmp_path: Path) -> None:
    """[E2] `make demo`: rows in, a killed producer's too, Spark SQL answers out."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "duplicate=True" in done.stdout
    assert "told 2500 times that its event is safe, then killed" in done.stdout
    assert re.search("found [0-9]+ events in the log", done.stdout)
    assert re.search("its own first event is row 14500 of version", done.stdout)
    assert re.search("segments: 1 of [0-9]+ may match", done.stdout)
    assert re.search(r"\|DE +\|6552 +\|", done.stdout)
    assert re.search(r"\|now +\|14501\|", done.stdout)
    assert re.search(r"\|4 +\|6000 +\|", done.stdout)


def test_the_demo_without_java_shows_what_it_can(tmp_path: Path) -> None:
    """The Python part runs, a hint says what to install, and the exit code says it was not all.

    A table of the user's own, such as the README's, stays where it is.
    """
    own = strandline.create_table(tmp_path / "lake" / "events", {"n": "int64"})
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "no-java")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    assert "bought" in done.stdout
    assert "needs Java 17" in done.stderr
    assert "Traceback" not in done.stderr
    assert "strandline describe lake/demo/events" in done.stdout
    assert own.refresh().version == 1
    assert strandline.open_table(tmp_path / "lake" / "demo" / "events").tail().next_seq > 0
