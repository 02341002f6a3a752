"""Everybody who reads the same visits: each writes them in its own way and answers three questions.

Formats write with their defaults, one commit or file per batch. A query gives an Arrow table.
"""

from __future__ import annotations

import logging
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import bench_data
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

COLUMNS = ["ts", "user_id", "amount"]
"""What a range and a lookup return."""
GROUP = "SELECT country, sum(amount) AS total FROM t GROUP BY country"


class Queries(Protocol):
    """An open table."""

    def time_range(self, first_ms: int, last_ms: int) -> pa.Table:
        """Visits from the first to the last millisecond, both included."""

    def lookup(self, user: str) -> pa.Table:
        """All visits of one user."""

    def grouped(self) -> pa.Table:
        """The sum of `amount` by country."""


class Contestant(Protocol):
    """A library and a way of using it."""

    name: str
    folder: str
    """Where its data lies; some share one."""

    def write(self, folder: Path, batches: Iterable[pa.Table]) -> None: ...

    def open(self, folder: Path) -> Queries: ...


def _moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _sql_moment(ms: int) -> str:
    return f"TIMESTAMPTZ '{_moment(ms).isoformat(' ')}'"


def _summed(rows: pa.Table) -> pa.Table:
    return (
        rows.group_by("country").aggregate([("amount", "sum")]).rename_columns(["country", "total"])
    )


# --- Strandline ---------------------------------------------------------------------------------


class Strandline:
    """Ours, with options of the table."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options = name, options
        self.folder = name.replace(" ", "-")

    def write(self, folder: Path, batches: Iterable[pa.Table]) -> None:
        append = self.create(folder)
        for batch in batches:
            append(batch)

    def create(self, url: str | Path, **more: Any) -> Callable[[pa.Table], object]:
        """Create the table; the function that appends to it."""
        import strandline

        options = {**self.options, **more}
        return strandline.create_table(url, bench_data.VISITS, time_column="ts", **options).append

    def open(self, folder: Path) -> Queries:
        return StrandlineQueries(folder)


class StrandlineQueries:
    """A handle; each query is a scan."""

    def __init__(self, url: str | Path, **options: Any) -> None:
        import strandline

        self.table = strandline.open_table(url, **options)

    def time_range(self, first_ms: int, last_ms: int) -> pa.Table:
        return self.table.scan(COLUMNS, start_ts=first_ms, end_ts=last_ms).to_arrow()

    def lookup(self, user: str) -> pa.Table:
        return self.table.scan(COLUMNS, f"user_id = '{user}'").to_arrow()

    def grouped(self) -> pa.Table:
        return _summed(self.table.scan(["country", "amount"]).to_arrow(dictionaries=True))


# --- plain Parquet ------------------------------------------------------------------------------


class RawArrow:
    """A folder of Parquet files, read by pyarrow.dataset."""

    name, folder = "pyarrow.dataset", "parquet"

    def write(self, folder: Path, batches: Iterable[pa.Table]) -> None:
        folder.mkdir(parents=True)
        for number, batch in enumerate(batches):
            pq.write_table(batch, folder / f"{number:04d}.parquet")

    def open(self, folder: Path) -> Queries:
        import pyarrow.dataset as ds

        return DatasetQueries(ds.dataset(folder))


class DatasetQueries:
    """Anything that gives a pyarrow dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def time_range(self, first_ms: int, last_ms: int) -> pa.Table:
        import pyarrow.compute as pc

        low, high = (
            pa.scalar(_moment(ms), pa.timestamp("us", "UTC")) for ms in (first_ms, last_ms)
        )
        wanted = (pc.field("ts") >= low) & (pc.field("ts") <= high)
        return self.dataset.to_table(COLUMNS, filter=wanted)

    def lookup(self, user: str) -> pa.Table:
        import pyarrow.compute as pc

        return self.dataset.to_table(COLUMNS, filter=pc.field("user_id") == user)

    def grouped(self) -> pa.Table:
        return _summed(self.dataset.to_table(["country", "amount"]))


class DuckDb(RawArrow):
    """The same files, read by DuckDB."""

    name = "DuckDB read_parquet"

    def open(self, folder: Path) -> Queries:
        return DuckQueries(folder)


class DuckQueries:
    """A view over the files."""

    def __init__(self, folder: Path, files: str = "*.parquet") -> None:
        import duckdb

        self.duck = duckdb.connect()
        self.duck.execute("SET TimeZone = 'UTC'")
        self.duck.read_parquet(f"{folder}/{files}").create_view("t")

    def _run(self, query: str) -> pa.Table:
        return self.duck.execute(query).to_arrow_table()

    def time_range(self, first_ms: int, last_ms: int) -> pa.Table:
        ends = f"{_sql_moment(first_ms)} AND {_sql_moment(last_ms)}"
        return self._run(f"SELECT {', '.join(COLUMNS)} FROM t WHERE ts BETWEEN {ends}")  # noqa: S608

    def lookup(self, user: str) -> pa.Table:
        return self._run(f"SELECT {', '.join(COLUMNS)} FROM t WHERE user_id = '{user}'")  # noqa: S608

    def grouped(self) -> pa.Table:
        return self._run(GROUP)


class ArrowOnOurs(RawArrow):
    """The files of our table, decoded by pyarrow and nothing else: no checks and no plan."""

    name = "pyarrow's decoder on our files"

    def open(self, folder: Path) -> Queries:
        return DecodedQueries(sorted(folder.glob("w*/*/*.parquet")))


class DecodedQueries:
    """A thread for each file, texts as codes, as our scan does it; the codes are not united."""

    def __init__(self, files: list[Path]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.files, self.pool = files, ThreadPoolExecutor(2)

    def _read(self, file: Path) -> pa.Table:
        parquet = pq.ParquetFile(file, read_dictionary=["country"], pre_buffer=False)
        return parquet.read(["country", "amount"], use_threads=False)

    def grouped(self) -> pa.Table:
        return _summed(pa.concat_tables(self.pool.map(self._read, self.files)).unify_dictionaries())


class DuckOnOurs(DuckDb):
    """The files of our table, read by DuckDB."""

    name = "DuckDB on our files"

    def open(self, folder: Path) -> Queries:
        return DuckQueries(folder, "w*/*/*.parquet")


# --- other formats ------------------------------------------------------------------------------


class Delta:
    """deltalake, through pyarrow."""

    name, folder = "deltalake to_pyarrow", "delta"

    def write(self, folder: Path, batches: Iterable[pa.Table]) -> None:
        import deltalake

        for batch in batches:
            deltalake.write_deltalake(str(folder), batch, mode="append")

    def open(self, folder: Path) -> Queries:
        import deltalake

        return DatasetQueries(deltalake.DeltaTable(str(folder)).to_pyarrow_dataset())


class DeltaEngine(Delta):
    """deltalake's own engine."""

    name = "deltalake QueryBuilder"

    def open(self, folder: Path) -> Queries:
        return DeltaQueries(str(folder))


class DeltaQueries:
    """SQL by DataFusion."""

    def __init__(self, url: str, **options: Any) -> None:
        import deltalake

        table = deltalake.DeltaTable(url, **options)
        self.builder = deltalake.QueryBuilder().register("t", table)

    def _run(self, query: str) -> pa.Table:
        return pa.table(self.builder.execute(query).read_all())

    def time_range(self, first_ms: int, last_ms: int) -> pa.Table:
        low, high = (f"TIMESTAMP '{_moment(ms).isoformat()}'" for ms in (first_ms, last_ms))
        return self._run(f"SELECT {', '.join(COLUMNS)} FROM t WHERE ts >= {low} AND ts <= {high}")  # noqa: S608

    def lookup(self, user: str) -> pa.Table:
        return self._run(f"SELECT {', '.join(COLUMNS)} FROM t WHERE user_id = '{user}'")  # noqa: S608

    def grouped(self) -> pa.Table:
        return self._run(GROUP)


class Iceberg:
    """pyiceberg with a SQLite catalog."""

    name, folder = "pyiceberg", "iceberg"

    def _catalog(self, folder: Path) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        logging.getLogger("pyiceberg").setLevel(logging.ERROR)
        return SqlCatalog("b", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/w")

    def write(self, folder: Path, batches: Iterable[pa.Table]) -> None:
        folder.mkdir(parents=True)
        catalog = self._catalog(folder)
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", bench_data.VISITS)
        for batch in batches:
            table.append(batch)

    def open(self, folder: Path) -> Queries:
        return IcebergQueries(self._catalog(folder).load_table("n.t"))


class IcebergQueries:
    """Scans of a loaded table."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def _scan(self, wanted: Any) -> pa.Table:
        return self.table.scan(row_filter=wanted, selected_fields=tuple(COLUMNS)).to_arrow()

    def time_range(self, first_ms: int, last_ms: int) -> pa.Table:
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual

        low, high = (_moment(ms).isoformat() for ms in (first_ms, last_ms))
        return self._scan(And(GreaterThanOrEqual("ts", low), LessThanOrEqual("ts", high)))

    def lookup(self, user: str) -> pa.Table:
        from pyiceberg.expressions import EqualTo

        return self._scan(EqualTo("user_id", user))

    def grouped(self) -> pa.Table:
        return _summed(self.table.scan(selected_fields=("country", "amount")).to_arrow())


class Lance:
    """pylance without an index."""

    name, folder = "lance", "lance"

    def write(self, folder: Path, batches: Iterable[pa.Table]) -> None:
        import lance

        for batch in batches:
            lance.write_dataset(batch, str(folder), mode="append" if folder.exists() else "create")

    def open(self, folder: Path) -> Queries:
        return LanceQueries(str(folder))


class LanceIndexed(Lance):
    """pylance with a B-tree on `user_id`."""

    name, folder = "lance BTREE", "lance-btree"

    def write(self, folder: Path, batches: Iterable[pa.Table]) -> None:
        del batches
        shutil.copytree(folder.with_name(Lance.folder), folder)
        self.build(folder)

    def build(self, folder: Path) -> None:
        import lance

        lance.dataset(str(folder)).create_scalar_index("user_id", "BTREE")


class LanceQueries:
    """Scans of a dataset."""

    def __init__(self, url: str, **options: Any) -> None:
        import lance

        self.dataset = lance.dataset(url, **options)

    def time_range(self, first_ms: int, last_ms: int) -> pa.Table:
        low, high = (f"timestamp '{_moment(ms).isoformat(' ')}'" for ms in (first_ms, last_ms))
        return self.dataset.to_table(COLUMNS, filter=f"ts >= {low} AND ts <= {high}")

    def lookup(self, user: str) -> pa.Table:
        return self.dataset.to_table(COLUMNS, filter=f"user_id = '{user}'")

    def grouped(self) -> pa.Table:
        return _summed(self.dataset.to_table(["country", "amount"]))


OURS = Strandline("strandline")
OURS_BARE = Strandline("strandline without indexes", indexes=False)
_FOR_LOOKUPS: dict[str, Any] = {"zone_pages": True, "zone_rows": 512}
"""A page of few rows is all that a lookup has to decode around a row it wants."""
OURS_SORTED = Strandline("strandline sort_by", sort_by=["user_id"], **_FOR_LOOKUPS)
OURS_POSTINGS = Strandline("strandline postings", indexes={"user_id": ["postings"]}, **_FOR_LOOKUPS)
ArrowOnOurs.folder = DuckOnOurs.folder = OURS.folder
ON_OUR_FILES: dict[str, Contestant] = {c.name: c for c in [ArrowOnOurs(), DuckOnOurs()]}
"""What our full scan can at best come to; they write nothing and are no peers."""
ALL: dict[str, Contestant] = {
    c.name: c
    for c in [
        OURS, OURS_SORTED, OURS_POSTINGS, RawArrow(), DuckDb(), Delta(), DeltaEngine(), Iceberg(),
        Lance(), LanceIndexed(),
    ]
}  # fmt: skip


def contestant(name: str) -> Contestant:
    """By its name."""
    return {**ALL, **ON_OUR_FILES}[name]
