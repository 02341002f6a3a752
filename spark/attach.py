"""All tables of a catalog as views, each pinned to one version, so that plain SQL works."""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa

from strandline.catalogs import Catalog
from strandline.spark.enable import check_reach, enable, frame_of
from strandline.spark.jvm import require_jvm
from strandline.spark.request import ReadRequest
from strandline.spark.sources import SOURCES
from strandline.tableformat.errors import InvalidInput, TableNotFound

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from strandline.catalogs import TableInfo
    from strandline.table import Table

_LOCK: Final = threading.Lock()
_NUMBER: Final = re.compile(r"[0-9]+(e[0-9]+)?(l|s|y|f|d|bd)?", re.IGNORECASE)
"""What SQL takes for a number, also where it wants a name."""


class _View(NamedTuple):
    """A view, and the table and version that it shows."""

    name: str
    label: str
    table: tuple[str, str, str]
    """Catalog, namespace and name."""


@dataclass(slots=True)
class _Attached:
    """What one call of `attach` made."""

    catalog: Catalog
    root: str
    storage_options: Mapping[str, Any] | None
    namespaces: tuple[str, ...] | None
    prefix: str
    hidden_columns: bool
    views: dict[str, _View] = field(default_factory=dict)
    """By the name as Spark compares it."""


_ATTACHED: Final[WeakKeyDictionary[Any, list[_Attached]]] = WeakKeyDictionary()
"""By session: views belong to one."""


def attach(
    spark: SparkSession,
    root: str | os.PathLike[str],
    *,
    namespaces: Sequence[str] | None = None,
    prefix: str = "",
    hidden_columns: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Make views of all tables of the catalog at `root`, and give their names.

    A table `orders` of the default namespace is the view `orders`, `web.clicks` is `web_clicks`;
    characters that SQL does not take in a name become `_`, and such a view, as one that would be a
    number, ends with 8 hex digits that tell its table from others. Beside each lie
    `<view>__history`, `__files`, `__windows`, `__segments` and `__indexes`. `prefix` goes before
    every name. Every view stays at the version that was newest now, until `refresh` moves all of
    them. Tables with `scope="user"` are left out: `read_users` gives their rows.
    """
    enable(spark)
    made = _Attached(
        Catalog(root, storage_options),
        str(root),
        storage_options,
        None if namespaces is None else tuple(namespaces),
        prefix,
        hidden_columns,
    )
    SOURCES.remember_options(made.catalog.url, storage_options)
    names = _show(spark, made)
    with _LOCK:
        _ATTACHED.setdefault(spark, []).append(made)
    return names


def refresh(spark: SparkSession) -> list[str]:
    """Move all attached views to the newest versions; new tables appear, dropped ones go."""
    with _LOCK:
        known = list(_ATTACHED.get(spark, []))
    return [name for made in known for name in _show(spark, made)]


def sql(spark: SparkSession, query: str, **arguments: Any) -> DataFrame:
    """Refresh the attached views, then run a query; `arguments` as for `spark.sql`."""
    refresh(spark)
    return spark.sql(query, **arguments)


def detach(spark: SparkSession, root: str | os.PathLike[str] | None = None) -> None:
    """Drop the views of the catalog at `root`, or of all that are attached."""
    with _LOCK:
        known = _ATTACHED.get(spark, [])
        gone = [made for made in known if root is None or made.root == str(root)]
        _ATTACHED[spark] = [made for made in known if made not in gone]
    if root is not None and not gone:
        raise InvalidInput(f"no catalog at {root} is attached to this session")
    for made in gone:
        for view in made.views.values():
            spark.catalog.dropTempView(view.name)


def _show(spark: SparkSession, made: _Attached) -> list[str]:
    """Open every table first, so that views change together or not at all."""
    views: dict[str, _View] = {}
    frames: dict[str, DataFrame] = {}
    main: list[str] = []
    others = _of_others(spark, made)
    for info in _tables(made):
        try:
            table = made.catalog.open_table((info.namespace, info.name))
        except TableNotFound:
            continue  # dropped a moment ago
        if table.config.scope != "shared":
            continue  # rows of users are no view: `read_users` gives them
        view = _view_name(made.prefix, info)
        identity = (made.catalog.url, info.namespace, info.name)
        label = f"{info.uuid}@{table.version}"
        for name in [view, *(f"{view}__{about}" for about in METADATA)]:
            # Spark does not tell capitals apart, and the later view would take the other's place.
            if name.casefold() in views or others.get(name.casefold(), identity) != identity:
                raise InvalidInput(
                    f"two tables would have the view {name!r}, one of them "
                    f"{info.namespace}.{info.name}; attach their namespaces apart, with a prefix "
                    "each. No view was changed."
                )
            views[name.casefold()] = _View(name, label, identity)
        main.append(view)
        if made.views.get(view.casefold()) != (view, label, identity):
            # A live handle would move on when it is asked for files, and the view would not.
            table = made.catalog.open_table((info.namespace, info.name), version=table.version)
            frames[view] = _pinned(spark, made, info, table)
            frames |= {f"{view}__{n}": spark.createDataFrame(f(table)) for n, f in METADATA.items()}
    for name in {view.name for view in made.views.values()} - {v.name for v in views.values()}:
        spark.catalog.dropTempView(name)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    made.views = views
    return main


def _of_others(spark: SparkSession, made: _Attached) -> dict[str, tuple[str, str, str]]:
    """The tables that other calls of `attach` have made views of."""
    with _LOCK:
        known = list(_ATTACHED.get(spark, []))
    return {key: v.table for other in known if other is not made for key, v in other.views.items()}


def _tables(made: _Attached) -> list[TableInfo]:
    chosen = made.namespaces
    if chosen is None:
        chosen = tuple(info.name for info in made.catalog.list_namespaces())
    return [info for namespace in chosen for info in made.catalog.list_tables(namespace)]


def _view_name(prefix: str, info: TableInfo) -> str:
    full = info.name if info.namespace == "default" else f"{info.namespace}_{info.name}"
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in full)
    if plain == full and not _NUMBER.fullmatch(prefix + full):
        return prefix + full
    identity = f"{info.namespace}\0{info.name}".encode()
    return f"{prefix}{plain}_{hashlib.sha256(identity).hexdigest()[:8]}"


def _pinned(spark: SparkSession, made: _Attached, info: TableInfo, table: Table) -> DataFrame:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - an optional dependency

    check_reach(require_jvm(spark), info.url)
    request = ReadRequest(version=table.version, hidden_columns=made.hidden_columns)
    return DataFrame(frame_of(spark, SOURCES.open(info.url, request)), spark)


# --- tables about a table ---


def _history(table: Table) -> pa.Table:
    records = table.history()
    return pa.table(
        {
            "version": pa.array([r.version for r in records], pa.int64()),
            "committed_at": pa.array([r.committed_at * 1000 for r in records], _MOMENT),
            "operation": pa.array([r.operation for r in records], pa.string()),
            "commit_id": pa.array([r.commit_id for r in records], pa.string()),
        }
    )


def _files(table: Table) -> pa.Table:
    return table.files().select(["path", "row_count", "size_bytes", "index_bytes", "created_at"])


def _windows(table: Table) -> pa.Table:
    grouped = table.files().group_by(["window_start", "window_ms"])
    found = grouped.aggregate(
        [
            ("path", "count"),
            ("row_count", "sum"),
            ("size_bytes", "sum"),
            ("min_seq", "min"),
            ("max_seq", "max"),
        ]
    )
    names = {"path_count": "files", "row_count_sum": "row_count", "size_bytes_sum": "size_bytes"}
    names |= {"min_seq_min": "min_seq", "max_seq_max": "max_seq"}
    renamed = found.rename_columns([names.get(name, name) for name in found.column_names])
    return renamed.sort_by("window_start")


def _indexes(table: Table) -> pa.Table:
    found = [split.entry for split in table.scan().plan().splits if split.entry.index is not None]
    schema = table.manifest.schema
    rows = [
        (entry.path, schema.by_id[column].name if column in schema.by_id else None, kind)
        for entry in found
        if entry.index is not None
        for column, kinds in entry.index.kinds.items()
        for kind in kinds
    ]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    names = ("path", "column", "kind")
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


_MOMENT: Final = pa.timestamp("us", tz="UTC")
METADATA: Final[Mapping[str, Callable[[Table], pa.Table]]] = {
    "history": _history,
    "files": _files,
    "windows": _windows,
    "segments": lambda table: table.files(),
    "indexes": _indexes,
}
