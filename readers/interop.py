"""Scans for pandas, Polars, DuckDB and pyarrow: each gets exactly the rows of the scan."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.readers.narrowing import narrowed
from strandline.tableformat.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from strandline.readers.scan import Scan


def _optional(module: str) -> Any:
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        raise StrandlineError(
            f"{package} is not installed, and the scan was to be given to it: pip install {package}"
        ) from None


def to_pandas(scan: Scan, options: Mapping[str, Any]) -> Any:
    """All rows as a pandas DataFrame."""
    _optional("pandas")
    return scan.to_arrow().to_pandas(**options)


def to_polars(scan: Scan) -> Any:
    """All rows as a Polars DataFrame."""
    return _optional("polars").from_arrow(scan.to_arrow())


def to_pyarrow_dataset(scan: Scan) -> Any:
    """A Dataset whose filters mean what they mean in pyarrow."""
    return import_module("strandline.readers.arrow_dataset").ScanDataset(scan)


def to_duckdb(scan: Scan, connection: Any) -> Any:
    """A relation over the scan."""
    duckdb = _optional("duckdb")
    dataset = import_module("strandline.readers.arrow_dataset").DuckDBDataset(scan)
    return (duckdb if connection is None else connection).from_arrow(dataset)


def scan_polars(scan: Scan) -> Any:
    """A LazyFrame that reads the scan when it is collected, each time anew."""
    polars = _optional("polars")
    plugins = _optional("polars.io.plugins")
    schema = polars.from_arrow(scan.schema.empty_table()).schema
    return plugins.register_io_source(io_source=_PolarsSource(polars, scan), schema=schema)


@dataclass(frozen=True, slots=True)
class _PolarsSource:
    """What Polars asks for, as its frames."""

    polars: Any
    scan: Scan

    def __call__(
        self, columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        names = self.scan.schema.names if columns is None else columns
        for batch in self._narrowed(names, predicate, n_rows).to_batches():
            frame = self.polars.from_arrow(batch)
            if predicate is not None:
                frame = frame.filter(predicate).select(names)
            yield from frame.iter_slices(batch_size) if batch_size else (frame,)

    def _narrowed(self, names: list[str], predicate: Any, n_rows: int | None) -> Scan:
        """The rows to filter.

        Polars counts before it filters: where it gives both, the first `n_rows` rows are taken,
        and then those of them that match.
        """
        scan = self.scan
        if n_rows is not None:
            limit = scan.request.limit
            scan = scan.changed(limit=n_rows if limit is None else min(limit, n_rows))
        if predicate is None:
            return narrowed(scan, names, None)
        from strandline.readers.polars_predicates import implied_by_polars  # noqa: PLC0415

        looked_at = dict.fromkeys([*names, *predicate.meta.root_names()])
        return narrowed(scan, list(looked_at), implied_by_polars(predicate, scan.schema))
