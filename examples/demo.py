"""The main job from end to end: a shop's clicks into a local lake, then questions with Spark SQL.

`make demo` runs this. It removes ./lake/demo and makes it anew; nothing else is touched.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import strandline
import strandline.spark

LAKE = Path("lake/demo")
EVENTS = LAKE / "events"
WAL = LAKE / "checkout-log"
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
YESTERDAY = MIDNIGHT - timedelta(days=1)
COUNTRIES = {"DE": 5, "US": 4, "FR": 3, "JP": 2, "BR": 1}
PRICES = {"lamp": "39.00", "chair": "129.50", "desk": "349.00", "mug": "8.90"}
HOURS_PER_BATCH, BATCHES, CLICKS_PER_BATCH = 4, 6, 2_000
LATE_CLICKS = 2_500


def clicks(batch: int) -> list[dict[str, Any]]:
    """One batch of events: four hours of a day in a web shop, the same in every run."""
    chance = random.Random(batch)  # noqa: S311 - sample data, not a secret
    start = YESTERDAY + timedelta(hours=batch * HOURS_PER_BATCH)
    rows = []
    for _ in range(CLICKS_PER_BATCH):
        product = chance.choice(list(PRICES))
        bought = chance.random() < 0.08  # noqa: PLR2004 - a plausible share
        rows.append(
            {
                "ts": start + timedelta(seconds=chance.randrange(HOURS_PER_BATCH * 3600)),
                "user_id": chance.randrange(500),
                "country": chance.choices(list(COUNTRIES), list(COUNTRIES.values()))[0],
                "action": "buy" if bought else "view",
                "product": product,
                "amount": float(PRICES[product]) if bought else None,
            }
        )
    return sorted(rows, key=lambda row: row["ts"])


def title(text: str) -> None:
    """A heading between two parts."""
    print(f"\n== {text} ".ljust(78, "="), flush=True)


def write() -> strandline.Table:
    """Create the table and append a day of clicks."""
    title("1. Create a table and append a day of clicks")
    shutil.rmtree(LAKE, ignore_errors=True)
    table = strandline.create_table(
        EVENTS,
        {
            "ts": "timestamptz",
            "user_id": "int64",
            "country": "string",
            "action": "string",
            "product": "string",
            "amount": "float64",
        },
        time_column="ts",
        ttl="7d",
    )
    for batch in range(BATCHES):
        commit = table.append(clicks(batch), writer_id="shop", batch=batch)
        print(f"version {commit.version}: rows {commit.first_seq} to {commit.last_seq}")
    again = table.append(clicks(0), writer_id="shop", batch=0)
    print(f"batch 0 once more: duplicate={again.duplicate}, nothing was written")
    return table


def produce(table: strandline.Table) -> None:
    """Append single events through a writer, as a web server would, and lose the process."""
    title("2. A producer: one event at a time, killed, and nothing is lost")
    killed = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, __file__, "--producer"], check=False, stdout=subprocess.PIPE, text=True
    )
    assert killed.returncode == -signal.SIGKILL
    print(
        f"the producer was told {killed.stdout.strip()} times that its event is safe, then killed"
    )
    print(f"rows in the table: {table.tail().next_seq}")
    with table.writer("checkout", wal=WAL) as writer:
        print(f"a new producer found {writer.recovered.rows} events in the log and committed them")
        receipt = writer.append(late_click(LATE_CLICKS))
        commit = receipt.wait()
        print(f"its own first event is row {commit.first_seq} of version {commit.version}")


def late_click(number: int) -> dict[str, Any]:
    """An event of the last minute of the day."""
    return {
        "ts": MIDNIGHT - timedelta(seconds=60 - number / 50),
        "user_id": number,
        "country": "DE",
        "action": "view",
        "product": "mug",
        "amount": None,
    }


def be_a_producer() -> None:
    """Append events until there are enough, then end as a crash does."""
    table = strandline.open_table(EVENTS)
    writer = table.writer("checkout", wal=WAL, flush_rows=1_000)
    for number in range(LATE_CLICKS):
        writer.append(late_click(number))  # returns once the event is in the log
    print(LATE_CLICKS, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def read(table: strandline.Table) -> None:
    """Ask with Python alone."""
    title("3. Ask with Python: only files that may hold the answer are opened")
    morning = int((YESTERDAY + timedelta(hours=8)).timestamp() * 1000)
    scan = table.scan(
        columns=["ts", "country", "product", "amount"],
        filter="action = 'buy' AND amount > 100",
        start_ts=morning,
        end_ts=morning + 4 * 3_600_000 - 1,
    )
    print(scan.explain(), end="\n\n")
    bought = Counter(scan.to_arrow().column("product").to_pylist())
    for product, count in sorted(bought.items()):
        print(f"  {product}: bought {count} times from 8 to 12 o'clock")


def query() -> None:
    """Ask with Spark SQL."""
    title("4. Ask with Spark SQL (starting Spark takes a few seconds)")
    # PySpark warns of a pandas newer than itself; nothing here goes through pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    spark = strandline.spark.session("strandline demo")
    strandline.spark.read(spark, EVENTS).createOrReplaceTempView("events")
    for question, sql in (
        (
            "Clicks, users, sales and revenue per country",
            """SELECT country, count(*) AS clicks, count(DISTINCT user_id) AS users,
                      count_if(action = 'buy') AS sales, round(sum(amount), 2) AS revenue
               FROM events GROUP BY country ORDER BY revenue DESC""",
        ),
        (
            "Revenue per hour, best five",
            """SELECT date_format(ts, 'HH:00') AS hour, round(sum(amount), 2) AS revenue
               FROM events WHERE action = 'buy'
               GROUP BY hour ORDER BY revenue DESC LIMIT 5""",
        ),
        (
            "What sells best where",
            """SELECT country, product, sales FROM (
                 SELECT country, product, count(*) AS sales,
                        row_number() OVER (
                          PARTITION BY country ORDER BY count(*) DESC, product) AS r
                 FROM events WHERE action = 'buy' GROUP BY country, product)
               WHERE r = 1 ORDER BY sales DESC, country""",
        ),
    ):
        print(f"\n{question}")
        spark.sql(sql).show(truncate=False)

    title("5. Travel in time: the table as it was after the third batch")
    strandline.spark.read(spark, EVENTS, version=4).createOrReplaceTempView("events_then")
    spark.sql(
        """SELECT 'now' AS version, count(*) AS rows, max(ts) AS newest FROM events
           UNION ALL SELECT '4', count(*), max(ts) FROM events_then"""
    ).show(truncate=False)
    follow(spark)
    spark.stop()


def follow(spark: Any) -> None:
    """A streaming query that goes on where it stopped."""
    title("6. A streaming query follows the table")
    table = strandline.open_table(EVENTS)
    for _ in range(2):
        query = (
            spark.readStream.format("strandline")
            .load(table.url)
            .where("action = 'buy'")
            .writeStream.format("strandline")
            .option("timeColumn", "ts")
            .option("checkpointLocation", str(LAKE / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(LAKE / "sales"))
        )
        query.awaitTermination()
        sales = strandline.open_table(LAKE / "sales")
        print(f"sales copied so far: {sales.tail().next_seq}")
        table.append([{**late_click(LATE_CLICKS + 1), "action": "buy", "amount": 8.9}])


def main() -> int:
    """Run every part; without Java the last ones are left out and the exit code says so."""
    if sys.argv[1:] == ["--producer"]:
        be_a_producer()
    table = write()
    produce(table)
    read(table)
    failed = False
    try:
        query()
    except strandline.spark.JavaMissing as error:
        failed = True
        print(f"\nThe Spark part was left out: {error}", file=sys.stderr)
    title("Try next")
    print(f"""\
  .venv/bin/strandline describe {EVENTS}
  .venv/bin/strandline scan {EVENTS} --filter "country = 'JP' AND action = 'buy'" --limit 5
  .venv/bin/strandline history {EVENTS}
  .venv/bin/strandline verify {EVENTS} --deep
  README.md goes on from here: exactly-once appends, changing columns, tables on S3.""")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
