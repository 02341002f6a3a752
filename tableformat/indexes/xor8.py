"""Algorithm `xor8`: a byte per value and a quarter more, false once in 256 lookups.

Each value has three places in a table of bytes, and the three bytes there give, combined by
exclusive or, the value's fingerprint. The table is found by peeling: a place that belongs to one
value alone can be set last, so that value is put aside, which leaves other places alone, and so
on. Whole waves of such places are peeled at once, and filters of many zones together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strandline.tableformat.xxh64 import Uint64s

MAX_SEEDS: Final = 64
"""Peeling fails for some seeds, more often for few values; after so many it is given up."""
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_PLACES: Final = 3


def thirds_for(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A third of the table's bytes for so many distinct values; none for none."""
    return np.where(counts == 0, 0, (32 + -(-counts * 123 // 100)) // 3 + 1)


@dataclass(frozen=True, eq=False)
class Tables:
    """Filters back to back: the bytes of all, and the seed of each."""

    table: NDArray[np.uint8]
    seeds: NDArray[np.uint8]


def build(
    hashes: Uint64s, groups: NDArray[np.int64], first: NDArray[np.int64], thirds: NDArray[np.int64]
) -> Tables | None:
    """Filters for the hashes of each group, which must be distinct; None if no seed was found.

    `first` and `thirds` say where the table of each group begins and how long its thirds are.
    """
    table = np.zeros(int((_PLACES * thirds).sum()), np.uint8)
    seeds = np.zeros(len(thirds), np.uint8)
    left = np.ones(len(hashes), np.bool_)
    for seed in range(MAX_SEEDS):
        seeds[groups[left]] = seed
        rest, owners = hashes[left], groups[left]
        mixed = _mixed(rest, seeds[owners])
        places = _places(mixed, first[owners], thirds[owners])
        waves = _peeled(places, len(table))
        failed = np.ones(len(rest), np.bool_)
        for keys, _ in waves:
            failed[keys] = False
        again = np.zeros(len(thirds), np.bool_)
        again[owners[failed]] = True
        prints = _fingerprints(mixed)
        for keys, at in reversed(waves):
            table[at] = prints[keys] ^ np.bitwise_xor.reduce(table[places[keys]], axis=1)
        for group in np.flatnonzero(again).tolist():
            table[first[group] : first[group] + _PLACES * thirds[group]] = 0
        left[left] = again[owners]
        if not left.any():
            return Tables(table, seeds)
    return None


def contains(
    tables: Tables,
    hashes: Uint64s,
    groups: NDArray[np.int64],
    first: NDArray[np.int64],
    thirds: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Whether each hash may be in the filter of its group."""
    mixed = _mixed(hashes, tables.seeds[groups])
    places = _places(mixed, first[groups], thirds[groups])
    found = np.bitwise_xor.reduce(tables.table[places], axis=-1)
    return np.equal(found, _fingerprints(mixed))


def _mixed(hashes: Uint64s, seeds: NDArray[np.uint8]) -> Uint64s:
    out: Uint64s = hashes + seeds.astype(np.uint64) * _STEP
    for factor in (_MIX_1, _MIX_2):
        out ^= out >> np.uint64(33)
        out *= factor
    out ^= out >> np.uint64(33)
    return out


def _fingerprints(mixed: Uint64s) -> NDArray[np.uint8]:
    return (mixed ^ (mixed >> np.uint64(32))).astype(np.uint8)


def _places(
    mixed: Uint64s, first: NDArray[np.int64], thirds: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A row of three places in the common table for each hash, one in each third."""
    length = thirds.astype(np.uint64)
    parts = []
    for third, turn in enumerate((0, 21, 42)):
        turned = mixed if not turn else mixed << np.uint64(turn) | mixed >> np.uint64(64 - turn)
        within = ((turned & _LOW_HALF) * length >> np.uint64(32)).astype(np.int64)
        parts.append(first + third * thirds + within)
    return np.stack(parts, axis=-1)


def _peeled(
    places: NDArray[np.int64], size: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Waves of keys and the place of each that no key of a later wave uses."""
    keys = np.arange(len(places))
    degree = np.bincount(places.ravel(), minlength=size)
    # The sum of the keys at a place is the key itself once it is alone there. Exact: sums of
    # keys stay far below 2**53.
    sums = np.zeros(size, np.int64)
    for third in range(_PLACES):
        sums += np.bincount(places[:, third], weights=keys, minlength=size).astype(np.int64)
    owner = np.empty(max(len(places), size), np.int64)
    alone = np.flatnonzero(degree == 1)
    waves = []
    while len(alone):
        found = sums[alone]
        owner[found] = alone  # a key may be alone in two of its places: one of them counts
        alone = alone[owner[found] == alone]
        found = sums[alone]
        waves.append((found, alone))
        touched = places[found]
        for third in range(_PLACES):
            np.subtract.at(degree, touched[:, third], 1)
            np.subtract.at(sums, touched[:, third], found)
        candidates = touched.ravel()
        candidates = candidates[degree[candidates] == 1]
        owner[candidates] = np.arange(len(candidates))
        alone = candidates[owner[candidates] == np.arange(len(candidates))]
    return waves
