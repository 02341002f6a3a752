"""Column types, and the values that random columns are filled with.

A pool holds the distinct values of one column: awkward ones (the ends of the type, NaN, both zeros,
code points around the surrogates, texts that are prefixes of each other or agree in more characters
than stats keep) and random ones. Rows and literals are both taken from it, so they meet.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from random import Random

INTEGERS = {
    pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64,
    pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32,
}  # fmt: skip
FLOATS = (pa.float32(), pa.float64())
TIMES = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
PLAIN = [
    pa.bool_(), *INTEGERS, *FLOATS, pa.date32(), *TIMES, pa.string(), pa.binary(),
    pa.decimal128(1, 0), pa.decimal128(4, 4), pa.decimal128(12, 2), pa.decimal128(18, 3),
    pa.decimal128(38, 0), pa.decimal128(38, 10),
]  # fmt: skip
_USUAL = [pa.string(), pa.string(), pa.float64(), pa.float64(), pa.int64(), pa.binary()]
"""Types with the most rules of their own; drawn as often as all others together."""
INNER = pa.struct([pa.field("deep", pa.float64()), pa.field("Odd name", pa.string())])
STRUCTS = [
    pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string()), pa.field("in", INNER)]),
    pa.struct([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("x", pa.decimal128(20, 2))]),
]
NESTED = [
    *STRUCTS,
    pa.list_(pa.field("element", pa.int64())),
    pa.list_(pa.field("element", pa.string())),
    pa.map_(pa.string(), pa.float64()),
]
WIDER: dict[pa.DataType, list[pa.DataType]] = {
    pa.int8(): [pa.int16(), pa.int32(), pa.int64()],
    pa.int16(): [pa.int32(), pa.int64()],
    pa.int32(): [pa.int64()],
    pa.uint8(): [pa.uint16(), pa.uint32(), pa.int16(), pa.int32(), pa.int64()],
    pa.uint16(): [pa.uint32(), pa.int32(), pa.int64()],
    pa.uint32(): [pa.int64()],
    pa.float32(): [pa.float64()],
    pa.decimal128(12, 2): [pa.decimal128(13, 2), pa.decimal128(38, 2)],
    pa.decimal128(18, 3): [pa.decimal128(19, 3), pa.decimal128(38, 3)],
    pa.decimal128(1, 0): [pa.decimal128(9, 0), pa.decimal128(38, 0)],
}

DAY_US = 86_400_000_000
YEAR_1_US, YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""What a literal can name: the times of Python's datetime."""
_NOW_US = 1_700_000_000_000_000
_AWKWARD_FLOATS = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.5, -2.0, 0.1, 5e-324, -5e-324,
    2.0**53, 2.0**53 + 2, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**63,
]  # fmt: skip
_LONG = "the first 32 characters are the same "
_AWKWARD_TEXTS = [
    "", "a", "ab", "abc", "ab\0", "b", "A", "a%b", "a_b", "a\\b", "a'b", 'a"b', "ab\n", "NaN",
    "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "a\U0001f600", "\U0010ffff", "\U0010ffff" * 2,
    "\ud7ff" * 40, "\U0010ffff" * 33, _LONG[:31] + "\U0010ffff",
    _LONG[:32], _LONG, _LONG + "x", _LONG + "y" * 60,
]  # fmt: skip
_ALPHABET = "ab%_\\é\ud7ff\ue000\U0001f600"


def kind_for(random: Random) -> pa.DataType:
    """A type for a column: any of them, nested ones now and then."""
    return random.choice(random.choice([PLAIN, PLAIN, PLAIN, _USUAL, _USUAL, _USUAL, NESTED]))


def pool(kind: pa.DataType, size: int, random: Random, numbers: np.random.Generator) -> pa.Array:
    """Up to `size` values of a type, none of them null; at least one."""
    if pa.types.is_struct(kind):
        # At least as many as awkward ones, so that the fields differ from each other.
        fields = [pool(field.type, size + 5, random, numbers) for field in kind]
        chosen = [with_nulls(_drawn(values, size, numbers), 0.2, numbers) for values in fields]
        return pa.StructArray.from_arrays(chosen, fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return pa.array([_nested(kind, random) for _ in range(size)], kind)
    if pa.types.is_boolean(kind):
        return pa.array(random.choice([[False, True], [True], [False, True]]), kind)
    if pa.types.is_string(kind):
        return _distinct(_texts(size, random), size, random, kind)
    if pa.types.is_binary(kind):
        return _distinct(_blobs(size, random), size, random, kind)
    if pa.types.is_decimal(kind):
        return _decimals(kind, size, random)
    if pa.types.is_floating(kind):
        return _floats(kind, size, random, numbers)
    return _whole_numbers(kind, size, random)


def with_nulls(values: pa.Array, share: float, numbers: np.random.Generator) -> pa.Array:
    """The values, some of them null."""
    if share <= 0:
        return values
    nulls = numbers.random(len(values)) < share
    at = np.where(nulls, 0, np.arange(len(values)))
    return values.take(pa.array(at, pa.int64(), mask=nulls))


def _drawn(values: pa.Array, count: int, numbers: np.random.Generator) -> pa.Array:
    return values.take(pa.array(numbers.integers(0, len(values), count)))


def _distinct(values: list[Any], size: int, random: Random, kind: pa.DataType) -> pa.Array:
    """Some of them, so that a small pool has other values each time."""
    unique = list(dict.fromkeys(values))
    return pa.array(random.sample(unique, min(size, len(unique))), kind)


def _whole_numbers(kind: pa.DataType, size: int, random: Random) -> pa.Array:
    if pa.types.is_date32(kind):
        low, high, base, ends = -(2**31), 2**31 - 1, _NOW_US // DAY_US, 100_000_000
        extra = [YEAR_1_US // DAY_US, YEAR_10000_US // DAY_US - 1]
    elif pa.types.is_timestamp(kind):
        low, high, base, ends = -(2**63), 2**63 - 1, _NOW_US, 2**62
        extra = [YEAR_1_US, YEAR_10000_US - 1, -1, -1000, -1001, 999, DAY_US]
    else:
        bits = INTEGERS[kind]
        signed = pa.types.is_signed_integer(kind)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        base, ends = random.choice([0, 100, 2**53]), high
        extra = [2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**53 + 2]
    awkward = [low, high, -1, 0, 1, 2, ends, -ends, ends - 1, *extra]
    wide = [random.randint(-ends, ends) for _ in range(size // 4)]
    step = random.choice([1, 1, 7, 1_000, DAY_US])
    close = [base + step * random.randint(-size, size) for _ in range(size)]
    fitting = [n for n in (*awkward, *wide, *close) if low <= n <= high]
    whole = _distinct(fitting or [0], size, random, pa.int64())
    if pa.types.is_date32(kind):
        return whole.cast(pa.int32()).cast(kind)
    return whole.cast(kind)


def _floats(kind: pa.DataType, size: int, random: Random, numbers: np.random.Generator) -> pa.Array:
    # By bits: NaNs of other payloads are NaN, too, and every magnitude occurs.
    wild = numbers.integers(0, 2**63, size // 4, np.int64).view(np.float64)
    close = np.round(numbers.normal(0, 50, size), random.choice([0, 1, 6]))
    tame = [math.nan, 0.0, -0.0, *close.tolist()]
    chosen = random.choice([tame, [*_AWKWARD_FLOATS, *wild.tolist(), *close.tolist()]])
    picked = np.array(random.sample(chosen, min(size, len(chosen))), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return pa.array(picked.astype(kind.to_pandas_dtype()), kind)


def _decimals(kind: pa.DataType, size: int, random: Random) -> pa.Array:
    most = 10**kind.precision - 1
    awkward = [
        most,
        -most,
        most - 1,
        0,
        1,
        -1,
        2,
        10**kind.scale,
        2**63,
        2**63 - 1,
        -(2**63),
        2**64,
    ]
    close = [random.randint(-size, size) for _ in range(size)]
    wide = [random.randint(-most, most) for _ in range(size // 2)]
    unscaled = [n for n in (*awkward, *close, *wide) if abs(n) <= most]
    chosen = random.sample(list(dict.fromkeys(unscaled)), min(size, len(set(unscaled))))
    # Two 64-bit words, low one first, are the number itself: no rounding on the way.
    words = b"".join(n.to_bytes(16, "little", signed=True) for n in chosen)
    return pa.Array.from_buffers(kind, len(chosen), [None, pa.py_buffer(words)])


def _texts(size: int, random: Random) -> list[str]:
    shape = random.choice(["user", "letters", "long", "mixed"])
    if shape == "user":
        return [f"user-{random.randrange(10 * size):06d}" for _ in range(size)]
    random_texts = ["".join(random.choices(_ALPHABET, k=random.randint(0, 6))) for _ in range(size)]
    if shape == "long":
        random_texts = [_LONG + text for text in random_texts]
    return [*_AWKWARD_TEXTS, *random_texts] if shape == "mixed" else [*random_texts, ""]


def _blobs(size: int, random: Random) -> list[bytes]:
    awkward = [
        b"",
        b"\0",
        b"a",
        b"a\0",
        b"ab",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"\xff" * 33,
        b"\xff" * 40,
    ]
    return awkward + [random.randbytes(random.choice([1, 2, 16, 40])) for _ in range(size)]


def _nested(kind: pa.DataType, random: Random) -> Any:
    length = random.choice([0, 1, 2, 5])
    if pa.types.is_map(kind):
        return [(f"k{i}", random.choice([None, 0.5, -0.0, math.nan])) for i in range(length)]
    inner = [None, 1, -5] if kind.value_type == pa.int64() else [None, "", "x", "\U0001f600"]
    return [random.choice(inner) for _ in range(length)]
