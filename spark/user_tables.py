"""Tables with `scope="user"` as a DataFrame: each task reads the users of some folders."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import strandline.api
from strandline.spark.sources import SOURCES
from strandline.spark.types import spark_type
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.stores.urls import absolute_url
from strandline.users import FOLDERS, UsersTable

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_TASKS = 16


@dataclass(frozen=True, slots=True)
class UsersReader:
    """Reads users inside a task; it carries what opens the table, and opens it there."""

    url: str
    """Not relative: workers run in a folder of their own."""
    storage_options: Mapping[str, Any] | None = field(repr=False)
    users: tuple[str, ...] | None
    columns: tuple[str, ...]
    filter: str | None
    schema: pa.Schema
    """What Spark takes; types that it does not have are wider there."""

    def __call__(self, splits: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = strandline.api.open_table(self.url, storage_options=self.storage_options)
        assert isinstance(table, UsersTable)
        for split in splits:
            for number in split.column(0).to_pylist():
                names = table.users_in(number) if self.users is None else [self.users[number]]
                scans = table.scan_users(names, columns=self.columns, filter=self.filter)
                for batch in scans.to_batches():
                    yield pa.RecordBatch.from_arrays(
                        [
                            array if array.type == field.type else array.cast(field.type)
                            for array, field in zip(batch.columns, self.schema, strict=True)
                        ],
                        schema=self.schema,
                    )


def read_users(
    spark: SparkSession,
    url: str | os.PathLike[str],
    users: Sequence[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the word users expect
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The rows of some users or all, with `_user`, read by the library inside Spark's tasks.

    Each user is read at its newest version when its turn comes: there is no snapshot common to
    all, and each action reads again. `filter` chooses files and rows as in `Table.scan`.
    `storage_options`, by default those that `enable` was given, travel to the workers with the
    task.
    """
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - Spark's own habit

    from strandline.spark.arrow_schema import arrow_schema  # noqa: PLC0415 - needs PySpark

    place = absolute_url(url)
    options = SOURCES.options_for(place) if storage_options is None else storage_options
    table = strandline.api.open_table(place, storage_options=options)
    if not isinstance(table, UsersTable):
        raise InvalidInput(f"{table.url} has scope='shared': read it with strandline.spark.read")
    known = {c.name: spark_type(c.type) for c in table.manifest.schema.columns}
    known |= {"_seq": T.LongType(), "_ts": T.LongType()}
    wanted = tuple(table.schema.names if columns is None else columns)
    unknown = [name for name in wanted if name not in known]
    if unknown or isinstance(columns, str) or isinstance(users, str):
        raise InvalidInput(f"columns and users are lists of names; there is no column {unknown}")
    schema = T.StructType([T.StructField("_user", T.StringType())])
    for name in wanted:
        schema.add(name, known[name])
    names = None if users is None else tuple(users)
    reader = UsersReader(place, options, names, wanted, filter, arrow_schema(schema))
    count = FOLDERS if names is None else len(names)
    splits = spark.range(0, count, 1, max(1, min(count, _TASKS)))
    with warnings.catch_warnings():
        # PySpark looks for pandas here and warns of new ones; Arrow batches need none.
        warnings.simplefilter("ignore", FutureWarning)
        return splits.mapInArrow(reader, schema)
