"""Writes the golden tables, the hostile ones of the conformance kit, and what they must give.

    python format_spec/golden/make_golden.py             # adds what is missing
    python format_spec/golden/make_golden.py --only v1_clamp

Golden bytes are added, not regenerated: a table that exists is left alone, because it stands for
what some released version has written. Time and chance are scripted, so the same library and
pyarrow give the same bytes.
"""

# ruff: noqa: INP001, T201 - a script beside the tables it writes, not a module of the package
from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from cites import CITES
from damages import DAMAGES
from tables import GOLDENS
from world import World, at

import strandline
from strandline.format_spec.conformance.rows import encode_table
from strandline.tableformat import types
from strandline.writers import append as appends

GOLDEN = Path(__file__).parent
HOSTILE = GOLDEN.parent / "conformance" / "tables"
CASES = GOLDEN.parent / "conformance" / "cases.json"
SPEC = GOLDEN.parent.parent / "SPEC.md"
SPEC_MARK = "<!-- decode: manifest; golden: v1_worked_example -->\n```json\n"


# --- writing them -------------------------------------------------------------------------------


def record(table: Path, version: int | None) -> dict[str, Any]:
    """The rows of a version as the library reads them, with the columns' types."""
    opened = strandline.open_table(table, version=version)
    hidden = ["_seq", "_ts", "_window"]
    columns = [
        {"name": column.name, "type": types.to_json(column.type)}
        for column in opened._snapshot.manifest.schema.columns  # noqa: SLF001
    ] + [{"name": name, "type": "int64"} for name in hidden]
    rows = opened.scan(columns=[str(column["name"]) for column in columns]).to_arrow()
    return {"columns": columns, "rows": encode_table(rows)}


def _write_json(file: Path, value: dict[str, Any]) -> None:
    """JSON with one line per row or case: small, and readable in a diff."""
    parts = []
    for key, content in value.items():
        listed = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in content)
        parts.append(f'"{key}": [\n  {listed}\n]' if content else f'"{key}": []')
    file.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def make_golden(name: str) -> None:
    """Write one golden table and its expected rows."""
    _, build, also = GOLDENS[name]
    world = World(GOLDEN / name / "table")
    build(world)
    _write_json(GOLDEN / name / "expected.json", record(world.folder, None))
    for version in also:
        _write_json(GOLDEN / name / f"expected-{version}.json", record(world.folder, version))


def make_hostile(name: str) -> None:
    """Write one table that readers must refuse."""
    world = World(HOSTILE / name / "table")
    table = world.create({"ts": "timestamptz", "n": "int32"}, time_column="ts")
    table.append([{"ts": at(i), "n": i} for i in range(3)])
    if name == "foreign_uuid":
        table.append([{"ts": at(4), "n": 4}])
    DAMAGES[name][2](world, world.document(world.head()))
    _flatten(HOSTILE / name)


def _flatten(folder: Path) -> None:
    for child in (folder / "table").iterdir():
        child.rename(folder / child.name)
    (folder / "table").rmdir()


def cases() -> dict[str, Any]:
    """Every golden and hostile table as a case of the conformance kit."""
    listed: list[dict[str, Any]] = []
    for name, (shows, _, also) in GOLDENS.items():
        base = f"../golden/{name}"
        case = {"name": name, "shows": shows, "table": f"{base}/table"}
        listed.append({**case, "expected": f"{base}/expected.json"})
        for version in also:
            older = {"name": f"{name}@{version}", "shows": f"Version {version} of it."}
            expected = f"{base}/expected-{version}.json"
            listed.append({**case, **older, "version": version, "expected": expected})
    gone = {"table": "../golden/v1_removed_versions/table", "error": "version_not_found"}
    for version, shows in (
        (2, "A zombie: stored below the marker, so it does not exist."),
        (3, "A version that was removed."),
        (6, "A version that nobody has committed yet."),
    ):
        listed.append(
            {"name": f"v1_removed_versions@{version}", "shows": shows, "version": version, **gone}
        )
    for name, (error, shows, _) in DAMAGES.items():
        case = {"name": name, "shows": shows, "table": f"tables/{name}", "error": error}
        listed.append({**case, "version": 2} if name == "foreign_uuid" else case)
    for case in listed:
        name = case["name"]
        case["cites"] = CITES.get(name, CITES[name.split("@")[0]]).split()
    return {"cases": listed}


def update_spec() -> None:
    """Put the worked example's manifest into SPEC.md."""
    world = World(GOLDEN / "v1_worked_example" / "table")
    text = SPEC.read_text(encoding="utf-8")
    start = text.index(SPEC_MARK) + len(SPEC_MARK)
    lines = [
        f'"{key}": {json.dumps(value)}'
        if key not in ("segments", "history")
        else _listed(key, value)
        for key, value in world.document(3).items()
    ]
    example = "{" + ",\n ".join(lines) + "}\n"
    SPEC.write_text(text[:start] + example + text[text.index("```", start) :], encoding="utf-8")


def _listed(key: str, values: list[Any]) -> str:
    return f'"{key}": [\n  ' + ",\n  ".join(json.dumps(value) for value in values) + "]"


def main() -> int:
    """Add what is missing, and say what was left alone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="only tables whose name contains this")
    options = parser.parse_args()
    # Two encoding threads would draw from chance in any order.
    with mock.patch.object(appends, "ENCODING_THREADS", 1):
        made, kept = 0, 0
        for folder, names, make in (
            (GOLDEN, GOLDENS, make_golden),
            (HOSTILE, DAMAGES, make_hostile),
        ):
            for name in names:
                if options.only not in name:
                    continue
                if (folder / name).exists():
                    kept += 1
                    continue
                try:
                    make(name)
                except BaseException:
                    shutil.rmtree(folder / name, ignore_errors=True)
                    raise
                made += 1
    _write_json(CASES, cases())
    update_spec()
    print(f"{made} tables written; {kept} exist and were left alone: golden bytes are only added")
    return 0


if __name__ == "__main__":
    sys.exit(main())
