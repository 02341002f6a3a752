"""A reader with faults, run as a command: to see that the conformance kit notices them.

It believes every row it can decode: no checksum, no version check, no visibility; and it takes
all rows for dense.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lz4.frame
import pyarrow.parquet as pq


def main() -> int:
    """Print rows as a hasty reader would."""
    root = Path(sys.argv[1])
    newest = min((root / "_strandline/manifests").glob("0*.json.lz4"))
    manifest = json.loads(lz4.frame.decompress(newest.read_bytes()))
    for entry in manifest["segments"]:
        rows = pq.read_table(root / entry["path"]).to_pylist()
        for index, row in enumerate(rows):
            seq = int(entry["min_seq"]) + index
            sys.stdout.write(json.dumps({**row, "_seq": str(seq)}, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
