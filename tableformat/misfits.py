"""Finding and naming the value that does not fit.

Arrow converts whole arrays and seldom says where it stopped. These helpers find the place. A row
in an error is the index in the array at hand; whoever cut that array out of something larger
moves it to the larger thing's numbering.
"""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat.errors import InvalidRow, StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable

NULL_REFUSED: Final = "it is null and must not be"
_SHOWN: Final = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 60


class TooLarge(StrandlineError):
    """An array's strings or lists need more than 32-bit offsets; its halves may not."""


def first_failure(length: int, attempt: Callable[[int, int], object]) -> int:
    """The first index at which `attempt(start, stop)` fails, given that the whole fails.

    Halving finds the place for about the price of one more conversion.
    """
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(low, middle)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError, LookupError):
            high = middle
        else:
            low = middle
    return low


def shown(value: object) -> str:
    """A value for an error message: short, whatever it is."""
    return _SHOWN.repr(value)


def shown_at(array: pa.Array, row: int) -> str:
    """One value of an array for an error message."""
    if pa.types.is_timestamp(array.type):  # its Python form may not exist, or need pandas
        return f"{array[row].value} {array.type.unit} since 1970"
    return shown(array[row].as_py())


def first_true(mask: pa.Array) -> int:
    """The index of the first true value; -1 where there is none."""
    index: int = pc.index(mask, pa.scalar(value=True)).as_py()
    return index


def first_value(array: pa.Array) -> int | None:
    """The index of the first value that is not null; None where there is none."""
    row = first_true(array.is_valid())
    return None if row < 0 else row


class RowsOf:
    """Names the row that holds an element, in errors that name the element."""

    def __init__(self, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._offsets = offsets

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, InvalidRow) and error.row is not None:
            row = int(np.searchsorted(self._offsets, error.row, side="right")) - 1
            raise InvalidRow(row, error.field, error.reason) from None


def in_halves(
    length: int, convert: Callable[[int, int], pa.Array], field: str, start: int = 0
) -> list[pa.Array]:
    """`convert(start, stop)` of the whole, or of halves where 32-bit offsets do not suffice."""
    try:
        return [convert(start, start + length)]
    except TooLarge:
        if length == 1:
            raise InvalidRow(start, field, "one value is larger than 2 GiB") from None
    except InvalidRow as error:
        raise moved(error, start) from None
    half = length // 2
    return [
        *in_halves(half, convert, field, start),
        *in_halves(length - half, convert, field, start + half),
    ]


def moved(error: InvalidRow, rows: int) -> InvalidRow:
    """The same error in the numbering of something that has `rows` rows in front."""
    row = None if error.row is None else error.row + rows
    return InvalidRow(row, error.field, error.reason)
