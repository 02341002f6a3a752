"""A second reader of the index kinds, written from the specification in plain Python.

It decodes one number at a time and answers "which zones may hold a value between two ends"; it
shares no code with the library but the table of domains.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import xxhash

SALTS = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip
WORD = 1 << 64
HALF = 1 << 32


def key(value: Any) -> tuple[bool, Any]:
    """The order of values: NaN above everything."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


@dataclass
class Bytes:
    """What is left of a blob."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size : self.at]

    def unsigned(self, size: int, count: int) -> list[int]:
        return [int.from_bytes(self.take(size), "little") for _ in range(count)]

    def signed(self, size: int, count: int) -> list[int]:
        return [int.from_bytes(self.take(size), "little", signed=True) for _ in range(count)]

    def values(self, form: str, count: int, *, text: bool) -> list[Any]:
        if form in ("int64", "int128"):
            return self.signed(int(form[3:]) // 8, count)
        if form == "float64":
            return [struct.unpack("<d", self.take(8))[0] for _ in range(count)]
        offsets = self.unsigned(4, count + 1)
        data = self.take(offsets[-1])
        parts = [data[a:b] for a, b in pairwise(offsets)]
        return [part.decode() for part in parts] if text else list(parts)

    def bitmap(self, count: int) -> list[bool]:
        data = self.take(-(-count // 8))
        return [bool(data[i // 8] >> i % 8 & 1) for i in range(count)]


@dataclass
class Spec:
    """One index, and what a reader knows of its segment."""

    kind: str
    data: bytes
    params: dict[str, Any]
    type: str
    rows: int
    zone_rows: int

    @property
    def zones(self) -> int:
        return -(-self.rows // self.zone_rows)

    @property
    def number_bytes(self) -> int:
        return 1 if self.zones <= 256 else 2 if self.zones <= 65_536 else 4

    def rows_of(self, zone: int) -> int:
        return min(self.zone_rows, self.rows - zone * self.zone_rows)

    def between(self, low: Any, high: Any) -> list[bool] | None:
        """Zones that may hold a value from `low` to `high`; None if the kind cannot tell."""
        blob = Bytes(self.data)
        mask: list[bool] | None = getattr(self, f"_{self.kind}")(blob, low, high)
        assert blob.at == len(self.data), "every byte has its place"
        return mask

    # --- bounds ---

    def _zone_map(self, blob: Bytes, low: Any, high: Any) -> list[bool]:
        nulls, flags = blob.unsigned(4, self.zones), blob.unsigned(1, self.zones)
        ends = blob.values(self.params["values"], 2 * self.zones, text=self.type == "string")
        out = []
        for zone in range(self.zones):
            least, most = ends[zone], ends[self.zones + zone]
            within = key(least) <= key(high) and key(most) >= key(low)
            nan = bool(flags[zone] & 2) and key(high) == key(math.nan)
            possible = not flags[zone] & 1 or within or nan
            out.append(possible and nulls[zone] < self.rows_of(zone))
        return out

    def _rank(self, blob: Bytes, low: Any, high: Any) -> None:
        self._zone_map(blob, low, high)
        for _ in range(2):
            order = blob.unsigned(self.number_bytes, self.zones)
            assert sorted(order) == list(range(self.zones))

    def _temporal(self, blob: Bytes, low: Any, high: Any) -> list[bool]:
        (base,) = blob.signed(8, 1)
        nulls = blob.unsigned(4, self.zones)
        size = int(self.params["distances"][1:]) // 8
        least, most = (blob.unsigned(size, self.zones) for _ in range(2))
        return [
            nulls[z] < self.rows_of(z) and base + least[z] <= high and base + most[z] >= low
            for z in range(self.zones)
        ]

    def _calendar(self, blob: Bytes, low: Any, high: Any) -> list[bool]:
        length = {"date": 1, "int64": 3_600_000}.get(self.type, 3_600_000_000)
        (count,) = blob.unsigned(4, 1)
        slots = blob.signed(8, count)
        if self.params["zones"] == "bitmaps":
            sets = [blob.bitmap(self.zones) for _ in range(count)]
        else:
            offsets = blob.unsigned(4, count + 1)
            numbers = blob.unsigned(self.number_bytes, offsets[-1])
            lists = [numbers[a:b] for a, b in pairwise(offsets)]
            sets = [[zone in one for zone in range(self.zones)] for one in lists]
        wanted = [s for slot, s in zip(slots, sets, strict=True) if slot in range(
            low // length, high // length + 1
        )]  # fmt: skip
        return [any(one[zone] for one in wanted) for zone in range(self.zones)]

    # --- values ---

    def _enum_bitmap(self, blob: Bytes, low: Any, high: Any) -> list[bool]:
        (count,) = blob.unsigned(4, 1)
        values = blob.values(self.params["values"], count, text=self.type == "string")
        maps = [blob.bitmap(self.zones) for _ in range(count + 1)]
        wanted = [i for i, v in enumerate(values) if key(low) <= key(v) <= key(high)]
        return [any(maps[i][zone] for i in wanted) for zone in range(self.zones)]

    def _range(self, blob: Bytes, low: Any, high: Any) -> list[bool]:
        (count,) = blob.unsigned(4, 1)
        ends = blob.values(self.params["values"], count + 1 if count else 0, text=False)
        out = []
        for _ in range(self.zones):
            has = blob.bitmap(count + 1)
            hit = has[count] and key(high) == key(math.nan)
            for i in range(count):
                below = key(ends[i]) <= key(high)
                last = i == count - 1
                above = key(ends[i + 1]) >= key(low) if last else key(ends[i + 1]) > key(low)
                hit = hit or (has[i] and below and above)
            out.append(hit)
        return out

    # --- hashes ---

    def hash_of(self, value: Any) -> int:
        if isinstance(value, str):
            canonical = value.encode()
        elif isinstance(value, bytes):
            canonical = value
        elif self.type.startswith("float"):
            plain = struct.pack("<d", 0.0 if value == 0 else value)
            canonical = bytes.fromhex("000000000000f87f") if math.isnan(value) else plain
        elif self.type == "bool":
            canonical = bytes([value])
        else:
            size = 16 if self.type.startswith("decimal") else 8
            canonical = value.to_bytes(size, "little", signed=True)
        return xxhash.xxh64_intdigest(canonical)

    def _postings(self, blob: Bytes, low: Any, high: Any) -> list[bool] | None:
        hashes, pairs, width, zero = blob.unsigned(4, 4)
        assert zero == 0
        keys = blob.unsigned(4, hashes)
        places = blob.unsigned(4, -(-hashes // 64)) if width else []
        counts = blob.unsigned(width, hashes) if width else [pairs // max(hashes, 1)] * hashes
        numbers = blob.unsigned(self.number_bytes, pairs)
        for i, place in enumerate(places):
            assert place == sum(counts[: 64 * i])
        if key(low) != key(high):
            return None
        wanted = self.hash_of(low) >> 32
        found: list[int] = []
        for i, one in enumerate(keys):
            if one == wanted:
                found = numbers[sum(counts[:i]) : sum(counts[: i + 1])]
        return [zone in found for zone in range(self.zones)]

    def _membership(self, blob: Bytes, low: Any, high: Any) -> list[bool] | None:
        found = self._filters(blob, low, high, 1)
        return None if found is None else found * self.zones

    def _zone_membership(self, blob: Bytes, low: Any, high: Any) -> list[bool] | None:
        return self._filters(blob, low, high, self.zones)

    def _filters(self, blob: Bytes, low: Any, high: Any, groups: int) -> list[bool] | None:
        offsets = blob.unsigned(4, groups + 1)
        if self.params["algorithm"] == "sbbf":
            seeds, table = [0] * groups, blob.take(32 * offsets[-1])
        else:
            seeds, table = blob.unsigned(1, groups), blob.take(offsets[-1])
        if key(low) != key(high):
            return None
        wanted, out = self.hash_of(low), []
        for group, (start, stop) in enumerate(pairwise(offsets)):
            if self.params["algorithm"] == "sbbf":
                out.append(start < stop and _bloom(table[32 * start : 32 * stop], wanted))
            else:
                out.append(start < stop and _xor8(table[start:stop], wanted, seeds[group]))
        return out


def _bloom(blocks: bytes, hashed: int) -> bool:
    block = (hashed >> 32) * (len(blocks) // 32) // HALF
    words = struct.unpack("<8I", blocks[32 * block : 32 * block + 32])
    bits = [(hashed % HALF * salt % HALF) >> 27 for salt in SALTS]
    return all(word >> bit & 1 for word, bit in zip(words, bits, strict=True))


def _xor8(table: bytes, hashed: int, seed: int) -> bool:
    m = (hashed + seed * 0x9E3779B97F4A7C15) % WORD
    m = (m ^ m >> 33) * 0xFF51AFD7ED558CCD % WORD
    m = (m ^ m >> 33) * 0xC4CEB9FE1A85EC53 % WORD
    m ^= m >> 33
    third = len(table) // 3
    found = 0
    for i, turn in enumerate((0, 21, 42)):
        turned = (m << turn | m >> (64 - turn)) % WORD
        found ^= table[i * third + turned % HALF * third // HALF]
    return found == (m ^ m >> 32) % 256
