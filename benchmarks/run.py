"""Run the benchmarks: `python benchmarks/run.py [commits contention bulk … readers]`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import warnings
from pathlib import Path

import bench_peers
from bench_bytecode import keep_bytecode
from bench_report import say

NAMES = (
    "commits",
    "contention",
    "bulk",
    "planning",
    "s3",
    "writer",
    "readers",
    "expire",
    "compact",
    "streams",
    "users",
)


def main() -> int:
    """Run what was asked for; the exit code says whether all targets were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; or all")
    parser.add_argument("--quick", action="store_true", help="fewer commits and rows")
    parser.add_argument("--full", action="store_true", help="slow peers do all their commits, too")
    parser.add_argument("--only", nargs="*", default=[], help="these peers only")
    parser.add_argument("--folder", type=Path, default=None, help="where tables are written")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(NAMES)}")
    # Peers warn about their own futures; the report is about numbers.
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    say(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {bench_peers.versions()}")
    met = True
    for name in options.names or NAMES:
        say(f"\n## {name}")
        benchmark = importlib.import_module(f"bench_{name}")
        with tempfile.TemporaryDirectory(prefix="strandline-bench-", dir=options.folder) as folder:
            met &= benchmark.run(Path(folder), options)
    return 0 if met else 1


if __name__ == "__main__":
    keep_bytecode()
    sys.exit(main())
