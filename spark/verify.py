"""Verifying a table on the cluster: tasks look at the data files, the driver at the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from strandline.maintenance import verify as checks
from strandline.spark.write import settings_for
from strandline.tableformat.segments import segment_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from strandline.maintenance.verify import Problem, VerifyReport
    from strandline.spark.source_options import SourceOptions
    from strandline.tableformat.segments import SegmentEntry

_FILES_PER_TASK: Final = 64


def verify(
    spark: SparkSession,
    url: str,
    *,
    deep: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """What `table.verify` says, with the data files checked by tasks."""
    settings = settings_for({"path": url}, storage_options)
    table = settings.open()
    task = _Task(settings, table.version, deep=deep)

    def look(entries: Sequence[SegmentEntry]) -> list[Problem]:
        listed = pa.table({"entry": [entry.to_json().decode() for entry in entries]})
        if not entries:
            return []
        tasks = -(-len(entries) // _FILES_PER_TASK)
        parts = spark.createDataFrame(listed).repartition(tasks)
        found = parts.mapInArrow(task, "path string, message string").collect()
        return [checks.Problem(row.path, row.message) for row in found]

    return checks.verify(table.manifest_service, table.manifest, deep=deep, look=look)


class _Task:
    """What runs on a worker: entries in, what is wrong with their files out."""

    def __init__(self, settings: SourceOptions, version: int, *, deep: bool) -> None:
        self._settings, self._version, self._deep = settings, version, deep

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self._settings.open(self._version)
        for batch in batches:
            texts = batch.column("entry").to_pylist()
            entries = [segment_from_json(orjson.loads(text)) for text in texts]
            found = checks.problems_in(
                table.manifest_service, table.manifest, entries, deep=self._deep
            )
            columns = {
                "path": pa.array([problem.path for problem in found], pa.string()),
                "message": pa.array([problem.message for problem in found], pa.string()),
            }
            yield pa.RecordBatch.from_pydict(columns)
