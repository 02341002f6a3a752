# ruff: noqa: INP001 - a script of the golden tables, no package
"""Writes the golden catalog, with a table of users and a remembered query, once; see README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import strandline
from strandline.api import create_in
from strandline.catalog.commit import MetadataChange, commit
from strandline.tableformat.retention import RaiseFilesFloor
from strandline.tableformat.storage import open_storage
from strandline.tableformat.windows import DAY_MS, HOUR_MS
from tests.tables import Script

FOLDER = Path(__file__).parent / "systems"
NOW = 1_769_860_800_000
USERS = ("ada", "Zoë/1", "x" * 130)
"""A plain name, one that is encoded, and one whose flat form is a hash."""
QUERY: dict[str, Any] = {
    "filter": "amount > 0",
    "columns": ["shop"],
    "bucket": "1h",
    "aggregates": {
        "sales": "count(*)",
        "total": "sum(amount)",
        "most": "max(amount)",
        "kinds": "approx_distinct(shop)",
    },
}


def make() -> None:
    """Names that live, moved and ended; chains that were compacted and cut; a kept answer."""
    root = strandline.Catalog(FOLDER / "catalog", runtime=Script(now=NOW).runtime())
    root.create_namespace("logs", create_on_append=True, ttl="7d")
    root.append("logs.auto", [{"line": "GET /"}])
    root.create_namespace("over")
    root.drop_namespace("over")
    for name in ("moves", "ends", "EU/returns.v2"):
        root.create_table(("shop", name), {"n": "int64"}).append([{"n": 1}])
    root.rename_table("shop.moves", "shop.moved")
    root.drop_table("shop.ends")
    rows = {"users": _users(root), "answer": _remembered(root)}
    expected = {
        "now_ms": NOW,
        "inbox": root.describe_table("app.inbox").url.removeprefix(f"{root.url}/"),
        "live": {n.name: _names(root, n.name) for n in root.list_namespaces()},
        **rows,
    }
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


def _names(root: strandline.Catalog, namespace: str) -> list[str]:
    return [table.name for table in root.list_tables(namespace)]


def _users(root: strandline.Catalog) -> dict[str, list[dict[str, Any]]]:
    table: Any = root.create_table(
        "app.inbox", {"at": "int64", "text": "string"}, time_column="at", ttl="7d", scope="user"
    )
    for n, user in enumerate(USERS):
        for hours in (240, 3, 2, 1):
            row = {"at": NOW - hours * HOUR_MS, "text": f"{n}-{hours}"}
            table.user(user).append([row], writer_id="w", batch=300 - hours)
    table.expire(now=NOW)
    table.user("ada").compact()
    table.user("ada").tag("kept", 2)
    table.user("Zoë/1").delete(filter="text = '1-2'")
    ada = table.user("ada")
    # What a vacuum commits; a real one looks at the dates of files, which cannot be scripted.
    change = MetadataChange((RaiseFilesFloor(2),))
    commit(ada._chain, ada._head, change, operation="vacuum")  # noqa: SLF001
    table.evolve(add={"more": "int64"})
    table.user("ada").append([{"at": NOW + DAY_MS, "text": "last", "more": 1}])
    columns = ["at", "text", "more", "_seq"]
    return {user: table.user(user).scan(columns).to_arrow().to_pylist() for user in USERS}


def _remembered(root: strandline.Catalog) -> list[dict[str, Any]]:
    table = root.create_table(
        "shop.sales", {"at": "int64", "shop": "string", "amount": "float64"}, time_column="at"
    )
    for number, hours in enumerate((5, 4, 4, 1)):
        some = [("a", 0.1), ("b", 2.5), ("a", -1.0), (None, 7.0)]
        rows = [{"at": NOW - hours * HOUR_MS, "shop": s, "amount": x} for s, x in some]
        table.append(rows)
        if not number:
            table.remember("by shop", QUERY)
            table.remember("over", {"columns": ["amount"]})
    table.refresh_query("by shop")
    table.forget("over")
    table.append([{"at": NOW, "shop": "b", "amount": 1e300}])
    found: list[dict[str, Any]] = table.show("by shop").to_pylist()
    return found


def make_keyed() -> None:
    """Users with a primary key: rows that were replaced, deleted, compacted, brought back."""
    folder = FOLDER.parent / "keyed_users"
    clock = Script(now=NOW)
    root: Any = create_in(
        open_storage(folder / "table"),
        {"at": "int64", "id": "int64", "text": "string"},
        runtime=clock.runtime(),
        time_column="at",
        primary_key="id",
        scope="user",
    )
    for number, name in enumerate(USERS[:2]):
        user = root.user(name)
        for n in range(6):
            clock.now += HOUR_MS
            user.upsert([{"at": clock.now, "id": n % 4, "text": f"{number}-{n}"}])
        user.delete(keys=[2, 9])
    ada = root.user("ada")
    ada.compact()
    ada.delete(filter="text = '0-3'")
    clock.now += HOUR_MS
    root.user("Zoë/1").upsert([{"at": clock.now, "id": 2, "text": "again"}])
    columns = ["at", "id", "text", "_seq"]
    rows = {name: root.user(name).scan(columns).to_arrow().to_pylist() for name in USERS[:2]}
    (folder / "expected.json").write_text(json.dumps(rows, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for made, place in ((make, FOLDER), (make_keyed, FOLDER.parent / "keyed_users")):
        if not place.exists():
            made()
