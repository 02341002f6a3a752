"""XXH64 with seed 0 of many byte strings at once.

One call per value costs more than the hash. Values of one length go through the same steps, so
each step is done for all of them together, and only rare lengths and long values one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

if TYPE_CHECKING:
    from numpy.typing import NDArray

Uint64s = np.ndarray[Any, np.dtype[np.uint64]]
Lanes = Callable[[int], Uint64s]
"""For an offset, the eight bytes that stand there in each value, as little-endian numbers."""

_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_PRIME_5: Final = 0x27D4EB2F165667C5
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, (_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5))
_WORD: Final = 1 << 64
_LOW_HALF, _LOW_BYTE = np.uint64(0xFFFFFFFF), np.uint64(0xFF)
_STRIPE: Final = 32
_BLOCK: Final = 8192

LONGEST_TOGETHER: Final = 256
"""Bytes: from here on, one call per value is as fast."""
FEWEST_TOGETHER: Final = 128
"""Values of one length: for fewer, the steps cost more than the calls."""


def of_int64s(numbers: NDArray[np.int64]) -> Uint64s:
    """The hash of each number's eight bytes in little-endian order."""
    words = numbers.astype("<i8", copy=False).view(np.uint64)
    return _same_length(8, len(words), lambda _offset: words)


def of_words(words: NDArray[np.uint64]) -> Uint64s:
    """The hash of each row of little-endian words."""
    return _same_length(8 * words.shape[1], len(words), lambda offset: words[:, offset // 8])


def of_slices(data: NDArray[np.uint8], offsets: NDArray[Any]) -> Uint64s:
    """The hash of `data[offsets[i]:offsets[i + 1]]` for every i."""
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    out = np.empty(len(starts), np.uint64)
    if not len(starts):
        return out
    # A lane is read as eight bytes even where the last value ends earlier.
    padded = np.concatenate([data[: offsets[-1]], np.zeros(8, np.uint8)])
    clipped = np.minimum(lengths, LONGEST_TOGETHER + 1)
    counts = np.bincount(clipped, minlength=LONGEST_TOGETHER + 2)
    for length in np.flatnonzero(counts).tolist():
        every = counts[length] == len(out)
        at: Any = slice(None) if every else np.flatnonzero(clipped == length)
        if length > LONGEST_TOGETHER or counts[length] < FEWEST_TOGETHER:
            out[at] = _one_by_one(padded, starts[at], lengths[at])
        else:
            out[at] = _together(length, padded, starts[at])
    return out


def _together(length: int, data: NDArray[np.uint8], starts: NDArray[np.int64]) -> Uint64s:
    # In blocks, so that what passes from step to step stays in the processor's cache.
    blocks = [starts[i : i + _BLOCK] for i in range(0, len(starts), _BLOCK)]
    return np.concatenate([_same_length(length, len(b), _lanes(data, b)) for b in blocks])


def _one_by_one(data: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> Uint64s:
    view, digest = data.data, xxhash.xxh64_intdigest
    ends = starts + lengths
    hashes = [digest(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(hashes, np.uint64)


def _lanes(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> Lanes:
    # A window of eight bytes at every byte: an overlapping view, so that one gather reads a lane.
    windows = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
    return lambda offset: windows[starts + offset].astype(np.uint64, copy=False)


def _rotated(x: Uint64s, bits: int) -> Uint64s:
    out: Uint64s = x << np.uint64(bits)
    out |= x >> np.uint64(64 - bits)
    return out


def _same_length(length: int, count: int, lane: Lanes) -> Uint64s:
    whole = length // _STRIPE * _STRIPE
    if whole:
        acc = _stripes(whole, count, lane)
        acc += np.uint64(length)
    else:
        acc = np.full(count, _PRIME_5 + length, np.uint64)
    return _avalanche(_tail(acc, whole, length, lane))


def _stripes(whole: int, count: int, lane: Lanes) -> Uint64s:
    begin = (_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1)
    sums = [np.full(count, value % _WORD, np.uint64) for value in begin]
    for offset in range(0, whole, _STRIPE):
        for i in range(4):
            sums[i] = _rotated(sums[i] + lane(offset + 8 * i) * _P2, 31) * _P1
    acc = _rotated(sums[0], 1) + _rotated(sums[1], 7)
    acc += _rotated(sums[2], 12) + _rotated(sums[3], 18)
    for part in sums:
        acc ^= _rotated(part * _P2, 31) * _P1
        acc = acc * _P1 + _P4
    return acc


def _tail(acc: Uint64s, offset: int, length: int, lane: Lanes) -> Uint64s:
    while offset + 8 <= length:
        acc ^= _rotated(lane(offset) * _P2, 31) * _P1
        acc = _rotated(acc, 27) * _P1 + _P4
        offset += 8
    if offset == length:
        return acc
    rest = lane(offset)  # up to seven bytes of it belong to the value
    if offset + 4 <= length:
        acc ^= (rest & _LOW_HALF) * _P1
        acc = _rotated(acc, 23) * _P2 + _P3
        rest = rest >> np.uint64(32)
        offset += 4
    while offset < length:
        acc ^= (rest & _LOW_BYTE) * _P5
        acc = _rotated(acc, 11) * _P1
        rest = rest >> np.uint64(8)
        offset += 1
    return acc


def _avalanche(acc: Uint64s) -> Uint64s:
    acc ^= acc >> np.uint64(33)
    acc *= _P2
    acc ^= acc >> np.uint64(29)
    acc *= _P3
    acc ^= acc >> np.uint64(32)
    return acc
