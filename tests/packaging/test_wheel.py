"""What is installed is what the repository holds, and it works away from it."""

from __future__ import annotations

import email
import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

import strandline
from tests.packaging.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

MAPPED = ("catalog", "format_spec", "maintenance", "readers", "spark", "strandline", "tableformat")
MAPPED += ("queries", "streams", "writers")
INSTALLED = (".py", ".typed", ".properties", ".java")
KIT = ("format_spec/golden/", "format_spec/conformance/")
"""Tables and cases of the conformance kit. Golden tables, and the scripts that made them, are used
from a clone alone."""


def run(
    code: str, *, site: Path, cwd: Path, blocked: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run code that sees the unpacked wheel and not this repository's editable install.

    `blocked` packages behave as if they were not installed.
    """
    prelude = f"""
import sys
sys.path = [{str(site)!r}] + [p for p in sys.path if p != {str(ROOT)!r}]
sys.meta_path = [f for f in sys.meta_path if "__editable__" not in getattr(f, "__module__", "")]
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {tuple(blocked)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", prelude + code],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _installed_name(tracked: str) -> str | None:
    """Where a tracked file of a mapped folder belongs in the wheel."""
    path = PurePosixPath(tracked)
    if path.parts[0] not in MAPPED or len(path.parts) == 1 or tracked.startswith(KIT[0]):
        return None
    if tracked.startswith("spark/pyspark_strandline/"):
        return tracked.removeprefix("spark/")
    return tracked if path.parts[0] == "strandline" else f"strandline/{tracked}"


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path, tracked: list[str]) -> None:
    """A new sub-folder that pyproject.toml does not list would be missing, and is found here."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        installed
        for name in tracked
        if (installed := _installed_name(name)) and PurePosixPath(name).suffix in INSTALLED
    }

    modules = {name for name in held if PurePosixPath(name).suffix in INSTALLED}
    assert modules == wanted


def test_the_source_archive_builds_the_same_wheel(
    wheel: Path, tracked: list[str], tmp_path: Path
) -> None:
    """Who installs without a wheel gets every module too, and SPEC.md beside them."""
    for name in tracked:
        copy = tmp_path / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(ROOT / name)
    code = "import sys, setuptools.build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
    command = [sys.executable, "-c", code]

    def build(what: str, cwd: Path) -> None:
        subprocess.run([*command, what, str(tmp_path)], cwd=cwd, check=True, capture_output=True)

    build("build_sdist", tmp_path / "source")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    build("build_wheel", unpacked)
    (built,) = tmp_path.glob("*.whl")

    def held(file: Path) -> set[str]:
        return set(zipfile.ZipFile(file).namelist())

    assert held(built) == held(wheel)
    assert (unpacked / "SPEC.md").is_file()


def test_the_wheel_holds_the_json_schemas(wheel: Path, tracked: list[str]) -> None:
    """Documents that a program reads are installed beside the code."""
    kit = tuple(f"strandline/{folder}" for folder in KIT)
    names = zipfile.ZipFile(wheel).namelist()
    held = {name for name in names if name.endswith(".json") and not name.startswith(kit)}
    wanted = {
        installed
        for name in tracked
        if (installed := _installed_name(name))
        and name.endswith(".json")
        and not name.startswith(KIT)
    }

    assert held == wanted


def test_no_generic_name_is_installed(wheel: Path) -> None:
    """`import catalog` in somebody's project must never find ours."""
    top = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {name for name in top if not name.endswith(".dist-info")} == {
        "strandline",
        "pyspark_strandline",
    }


def test_the_metadata_is_right(wheel: Path) -> None:
    """Version, licence text, types marker and the command."""
    archive = zipfile.ZipFile(wheel)
    info = f"strandline-{strandline.__version__}.dist-info"
    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))

    assert metadata["Version"] == strandline.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    licence = (ROOT / "LICENSE").read_bytes()
    assert archive.read(f"{info}/licenses/LICENSE") == licence
    assert b"END OF TERMS AND CONDITIONS" in licence
    assert archive.read("strandline/py.typed") == b""
    assert b"strandline = strandline.cli:main" in archive.read(f"{info}/entry_points.txt")


def test_every_module_can_be_imported_from_an_empty_folder(unpacked: Path, tmp_path: Path) -> None:
    """Nothing leans on the repository, on the working folder, or on another module's imports."""
    names = sorted(
        str(file.relative_to(unpacked).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for file in unpacked.rglob("*.py")
    )
    assert len(names) > 60
    optional = "'pyspark', 'py4j', 's3fs', 'gcsfs', 'adlfs', 'gcloud', 'rich', 'jsonschema'"

    done = run(
        f"""
import importlib, json
failed = {{}}
for name in {names!r}:
    for known in list(sys.modules):
        if known.partition(".")[0] in ("strandline", "pyspark_strandline"):
            del sys.modules[known]
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in ({optional}):
            failed[name] = str(error)
    except Exception as error:
        failed[name] = repr(error)
import strandline
print(json.dumps([failed, strandline.__file__]))
""",
        site=unpacked,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    failed, place = json.loads(done.stdout)
    assert failed == {}
    assert Path(place).is_relative_to(unpacked)


OPTIONAL = ("pyspark", "py4j", "pandas", "polars", "duckdb", "s3fs", "gcsfs", "adlfs", "rich")


def test_a_light_install_can_do_the_main_job(unpacked: Path, tmp_path: Path) -> None:
    """Without PySpark, pandas and the cloud libraries: create, append, scan, and the command."""
    done = run(
        """
import strandline
from strandline import cli
t = strandline.create_table("t", {"n": "int64", "s": "string"})
t.append([{"n": 1, "s": "a"}, {"n": 2, "s": None}])
t.evolve(rename={"s": "text"})
assert t.scan(filter="n > 1").to_arrow().to_pylist() == [{"n": 2, "text": None}]
assert t.verify(deep=True).ok and strandline.doctor("t").ok
assert cli.main(["scan", "t"]) == 0
import strandline.spark
for attempt, hint in ((strandline.spark.session, "strandline[spark]"),
                      (lambda: strandline.open_table("s3://bucket/t"), "strandline[s3]")):
    try:
        attempt()
    except strandline.StrandlineError as error:
        assert hint in str(error), error
    else:
        raise AssertionError(hint)
""",
        site=unpacked,
        cwd=tmp_path,
        blocked=OPTIONAL,
    )

    assert done.returncode == 0, done.stderr


def test_import_and_plan_load_no_heavy_module(unpacked: Path, tmp_path: Path) -> None:
    """[X3] pyarrow imports pandas at the first scalar, which costs more than most plans."""
    strandline.create_table(tmp_path / "t", {"n": "int64", "s": "string", "f": "float64"}).append(
        [{"n": n, "s": str(n), "f": n / 2} for n in range(10)]
    )
    heavy = ("pandas", "polars", "pyspark", "s3fs", "botocore", "gcsfs", "adlfs", "rich", "duckdb")
    heavy += ("aiohttp", "asyncio", "requests", "pyarrow.dataset", "strandline.readers.evaluate")
    heavy += ("pyarrow.compute", "strandline.writers.append", "strandline.catalogs")

    done = run(
        f"""
import json
import strandline
first = [name for name in {heavy!r} if name in sys.modules]
plan = strandline.open_table("t").scan(filter="n > 3 AND s LIKE '5%' AND f < 9").plan()
assert len(plan.segments) == 1
print(json.dumps([first, [name for name in {heavy!r} if name in sys.modules]]))
""",
        site=unpacked,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], []]


def test_a_plain_install_says_why_it_fails_in_the_repository(
    unpacked: Path, tmp_path: Path
) -> None:
    """In the repository's root, Python finds ./strandline first; the error says what to do."""
    (tmp_path / "strandline").symlink_to(ROOT / "strandline")

    done = run(
        f"sys.path.insert(0, {str(tmp_path)!r})\nimport strandline", site=unpacked, cwd=tmp_path
    )

    assert done.returncode == 1
    assert "ImportError: Python found the source folder ./strandline" in done.stderr
    assert "pip install -e ." in done.stderr


@pytest.mark.parametrize("name", sorted(set(MAPPED) - {"strandline"}))
def test_ruff_refuses_bare_imports(name: str) -> None:
    """`import tableformat` would load a second copy of every class beside strandline's own."""
    code = f"import {name}\nfrom {name} import errors\nfrom {name}.errors import InvalidInput\n"
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--output-format"]
    command += ["json", "--stdin-filename", "writers/new_module.py", "-"]
    done = subprocess.run(
        command, input=code, cwd=ROOT, capture_output=True, text=True, check=False
    )

    found = json.loads(done.stdout)
    assert [finding["location"]["row"] for finding in found] == [1, 2, 3]
    assert all(f"import strandline.{name}" in finding["message"] for finding in found)


def test_every_package_folder_is_listed(tracked: list[str]) -> None:
    """pyproject.toml names each folder with Python files, and no folder that is gone."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {
        str(PurePosixPath(name).parent)
        for name in tracked
        if name.endswith(".py") and _installed_name(name)
    }

    assert set(settings["package-dir"].values()) == folders
    assert set(settings["package-dir"]) == set(settings["packages"])
