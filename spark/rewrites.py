"""Compaction and re-indexing on the cluster: tasks rewrite, the driver commits once per job.

The driver plans and never reads a row. A job takes as many segments as one commit can, a larger
table several jobs, so the driver holds a bounded number of entries. Files of tasks that failed or
ran twice are listed nowhere; vacuum removes them.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from strandline.catalog.tidy import tidy
from strandline.place import TablePlace
from strandline.spark.write import settings_for
from strandline.tableformat.compaction import (
    DEFAULT_BYTES,
    DEFAULT_ROWS,
    Policy,
    plan_reindexing,
    plan_runs,
)
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.segments import segment_from_json
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.writers.compacting import CompactReport, sort_columns
from strandline.writers.rewrite_tasks import (
    RewriteTask,
    commit_together,
    in_rounds,
    runs_piecewise,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from strandline.spark.source_options import SourceOptions
    from strandline.table import Table
    from strandline.tableformat.compaction import Run
    from strandline.writers.rewrite_tasks import Choose, Done

_RESULT: Final = "run int, result binary"


def compact(
    spark: SparkSession,
    url: str,
    *,
    sort_by: Sequence[str] | None = None,
    target_rows: int = DEFAULT_ROWS,
    target_bytes: int = DEFAULT_BYTES,
    min_segments: int = 2,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactReport:
    """What `table.compact` does, with runs rewritten by tasks and put into one commit.

    A task needs memory for one run: `target_rows` and `target_bytes` bound it. Runs that others
    have changed meanwhile are left out and counted; the next compaction takes them up.
    """
    policy = Policy(target_rows, target_bytes, min_segments)
    job = _Job(settings_for({"path": url}, storage_options), sort_by)
    manifest = job.table.manifest

    def choose(entries: Sequence[Any]) -> list[Run]:
        return plan_runs(entries, policy, floor_ts=manifest.floor_ts, trim_seq=manifest.trim_seq)

    return job.run(spark, choose, dry_run=dry_run)


def reindex(
    spark: SparkSession,
    url: str,
    *,
    every: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactReport:
    """Rewrite the segments that lack an index which the table's settings ask for today.

    Writers under pressure leave indexes out, and a column that was added has none in older
    segments. `every`: all segments that are large enough to have indexes.
    """
    job = _Job(settings_for({"path": url}, storage_options), None)
    manifest = job.table.manifest

    def choose(entries: Sequence[Any]) -> list[Run]:
        return plan_reindexing(entries, manifest.schema, manifest.config, every=every)

    return job.run(spark, choose, dry_run=dry_run)


class _Job:
    def __init__(self, settings: SourceOptions, sort_by: Sequence[str] | None) -> None:
        self._settings = settings
        self.table = _shared(settings.open())
        self._place = TablePlace(self.table)
        self._sort_by = sort_columns(self.table.manifest, sort_by)

    def run(self, spark: SparkSession, choose: Choose, *, dry_run: bool) -> CompactReport:
        report = CompactReport(self.table.url, self.table.version, dry_run=dry_run)
        if not dry_run:
            probe_once_per_process(self.table.manifest_service.storage)
        # Planned from one version, to its end: rounds change only segments of their own.
        for runs in in_rounds(runs_piecewise(self._place, choose)):
            report = _planned(report, runs) if dry_run else self._round(spark, runs, report)
        if report.runs and not dry_run:
            self._place.see(tidy(self._place.chain, self._place.head))
            report = replace(report, version=self._place.head.manifest.version)
        return report

    def _round(self, spark: SparkSession, runs: list[Run], before: CompactReport) -> CompactReport:
        rows = pa.table(
            {
                "run": pa.array(range(len(runs)), pa.int32()),
                "entries": [[entry.to_json().decode() for entry in run.segments] for run in runs],
            }
        )
        task = _Task(self._settings, self.table.version, self._sort_by)
        # One task for each run: they are about equally large, and a failed one is done again alone.
        parts = spark.createDataFrame(rows).repartitionById(len(runs), "run")
        found = parts.mapInArrow(task, _RESULT).collect()
        done: list[Done] = [
            (runs[row["run"]], pickle.loads(bytes(row["result"])))  # noqa: S301 - of our own tasks
            for row in found
        ]
        committed = commit_together(self._place, done)
        return _counted(before, runs, committed)


class _Task:
    """What runs on a worker: runs in, what was written out."""

    def __init__(self, settings: SourceOptions, version: int, sort_by: tuple[int, ...]) -> None:
        self._settings, self._version, self._sort_by = settings, version, sort_by

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                entries = [segment_from_json(orjson.loads(text)) for text in row["entries"]]
                made = RewriteTask(
                    self._settings.url,
                    self._version,
                    tuple(entries),
                    self._sort_by,
                    self._settings.storage_options(),
                ).run()
                columns = {
                    "run": pa.array([row["run"]], pa.int32()),
                    "result": [pickle.dumps(made)],
                }
                yield pa.RecordBatch.from_pydict(columns)


def _shared(table: Table) -> Table:
    if table.config.scope != "shared":
        raise InvalidInput(
            f"{table.url} has scope={table.config.scope!r}: its rows belong to users, and files of "
            "such tables are not rewritten. Nothing was changed."
        )
    return table


def _planned(report: CompactReport, runs: Sequence[Run]) -> CompactReport:
    return replace(
        report,
        runs=report.runs + len(runs),
        segments_before=report.segments_before + sum(len(run.segments) for run in runs),
        rows=report.rows + sum(run.rows for run in runs),
        bytes_before=report.bytes_before + sum(run.size_bytes for run in runs),
    )


def _counted(
    report: CompactReport, runs: Sequence[Run], committed: Sequence[Done]
) -> CompactReport:
    makes = [made for _, made in committed]
    return replace(
        report,
        runs=report.runs + len(committed),
        lost_runs=report.lost_runs + len(runs) - len(committed),
        segments_before=report.segments_before + sum(len(run.segments) for run, _ in committed),
        segments_after=report.segments_after + sum(len(made.entries) for made in makes),
        rows=report.rows + sum(made.rows_written for made in makes),
        rows_dropped=report.rows_dropped + sum(made.rows_dropped for made in makes),
        bytes_before=report.bytes_before + sum(made.bytes_read for made in makes),
        bytes_after=report.bytes_after + sum(made.bytes_written for made in makes),
    )
