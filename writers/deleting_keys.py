"""Deletes from keyed tables by tombstones: of keys that are named, or of winners by a filter.

No file is rewritten: what is deleted is told in a small file of its own, behind the tail, and goes
from storage when compaction meets it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.catalog.commit import COMMIT_TIMEOUT_S, commit
from strandline.catalog.tidy import tidy
from strandline.readers.key_lookup import key_set
from strandline.readers.request import Request
from strandline.readers.scan import Scan
from strandline.tableformat import rolling
from strandline.tableformat.actions import settle_key
from strandline.tableformat.errors import SeqMismatch
from strandline.tableformat.expressions import col
from strandline.writers.append import Conditions, check_size
from strandline.writers.results import Commit, Deleted, added_result, earlier_result
from strandline.writers.tombstones import TombstoneChange

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from strandline.catalog.chain import Chain
    from strandline.catalog.commit import Committed
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.manifest import Manifest
    from strandline.writers.committing import Place

Int64s = np.ndarray[Any, np.dtype[np.int64]]


def delete_keys(
    place: Place, given: object, conditions: Conditions, properties: tuple[tuple[str, str], ...]
) -> Commit:
    """Delete the rows of these keys, whether there are any or not, in one commit."""
    keys = key_set(given, place.head.manifest).distinct()
    check_size(keys)
    head = place.head.manifest
    if not keys.num_rows:
        return added_result(head)
    known = None
    if conditions.key is not None:
        known = settle_key(conditions.key, head.positions, {})
    if known is not None:
        return earlier_result(conditions.key, known)
    chain = place.chain
    change = _change(chain, head, keys, partial(_now_or_later, chain, keys), conditions)
    done = _commit(place, change, properties)
    if done.earlier is not None:
        return earlier_result(conditions.key, done.earlier)
    return added_result(done.snapshot.manifest, change.rows)


def delete_winners(place: Place, condition: Expression, fence: str | None) -> Deleted:
    """Delete the keys whose newest row matches; nothing that is newer than that row.

    A tombstone has the time of the row it deletes, so that a row which came meanwhile, and which
    nobody has asked the filter about, wins. Where times are clamped they cannot tell, so then
    nothing may have come meanwhile.
    """
    chain = place.chain
    deadline = chain.runtime.monotonic() + COMMIT_TIMEOUT_S
    while True:
        place.see(chain.refresh(place.head))
        head = place.head.manifest
        found = _scan(chain, head, Request(columns=[*_names(head), "_ts"], filter=condition))
        if not found.num_rows:
            return Deleted(head.version, 0)
        clamps = head.config.order == "clamp"
        conditions = Conditions(fence=fence, match_seq=head.next_seq if clamps else None)
        times = found.column("_ts").to_numpy()
        change = _change(
            chain, head, found.drop_columns("_ts"), partial(_as_they_are, times), conditions
        )
        try:
            done = _commit(place, change, ())
        except SeqMismatch:
            if chain.runtime.monotonic() > deadline:
                raise
            continue
        return Deleted(done.snapshot.manifest.version, change.rows)


def _as_they_are(times: Int64s, head: Manifest) -> Int64s:
    del head
    return times


def _now_or_later(chain: Chain, keys: pa.Table, head: Manifest) -> Int64s:
    """For each key a time that no row of it is beyond: now, but for rows from the future.

    Only files that reach into the future are looked at.
    """
    now = max(chain.runtime.now_ms(), head.floor_ts)
    wanted = key_set(keys.rename_columns(_names(head)), head)
    request = Request(columns=[*_names(head), "_ts"], filter=col("_ts") > now)
    later = _scan(chain, head, request, wanted)
    times = np.full(wanted.count, now, np.int64)
    times[wanted.places(later)] = later.column("_ts").to_numpy()
    of_keys: Int64s = times[wanted.of_given]
    return of_keys


def _scan(chain: Chain, head: Manifest, request: Request, keys: Any = None) -> pa.Table:
    scan = Scan(
        chain.service, head, request, floor_ts=head.floor_ts, trim_seq=head.trim_seq, keys=keys
    )
    return scan.to_arrow()


def _names(head: Manifest) -> list[str]:
    return [column.name for column in head.key_columns]


def _change(
    chain: Chain,
    head: Manifest,
    keys: pa.Table,
    stamp: Callable[[Manifest], Int64s],
    conditions: Conditions,
) -> TombstoneChange:
    return TombstoneChange(
        chain.storage, chain.runtime, head, keys=keys, stamp=stamp, conditions=conditions
    )


def _commit(
    place: Place, change: TombstoneChange, properties: tuple[tuple[str, str], ...]
) -> Committed:
    done = commit(place.chain, place.head, change, operation="delete", properties=properties)
    place.see(done.snapshot)
    if done.earlier is None:
        # The keys are deleted. Housekeeping may take its time, and may fail.
        listed = len(done.snapshot.manifest.segments)
        if rolling.should_roll(listed - change.files, listed):
            place.see(tidy(place.chain, done.snapshot))
    return done
