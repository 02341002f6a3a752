"""Arrow arrays that break Arrow's own rules, recognised before they reach a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from strandline.tableformat.arrow_numbers import OFFSET_TYPES, offset_buffer
from strandline.tableformat.errors import InvalidRow
from strandline.tableformat.misfits import first_failure


def check_valid(array: pa.Array, field: str) -> None:
    """Refuse an array that breaks Arrow's own rules: text that is not UTF-8, wild offsets.

    Such arrays come through the C interface or unchecked casts. Written to a file they would
    break every reader. Plain text gets a test of its own because Arrow's takes six times as long.
    """
    kind = array.type
    try:
        if isinstance(kind, pa.BaseExtensionType):
            array.validate()
        elif kind in OFFSET_TYPES:
            _check_offsets_and_text(array)
        else:
            array.validate(full=not pa.types.is_primitive(kind))
    except (pa.ArrowException, LookupError) as error:
        # A slice of a nested or dictionary array still has all of its parts, so it tells nothing.
        row = None
        if kind.num_fields == 0 and not pa.types.is_dictionary(kind):
            row = first_failure(len(array), lambda a, b: array.slice(a, b - a).validate(full=True))
        raise InvalidRow(row, field, f"the Arrow data is damaged: {error}") from None


def _check_offsets_and_text(array: pa.Array) -> None:
    array.validate()
    if len(array) == 0:
        return
    offsets = offset_buffer(array)
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    data = array.buffers()[2]
    if not (offsets[1:] >= offsets[:-1]).all() or (
        text
        and data is not None
        and not _is_ascii(np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]])
    ):
        array.validate(full=True)


def _is_ascii(data: np.ndarray[Any, np.dtype[np.uint8]]) -> bool:
    whole = len(data) // 8 * 8
    bits = np.bitwise_or.reduce(data[:whole].view(np.uint64), initial=0)
    return not int(bits) & 0x8080_8080_8080_8080 and not (data[whole:] & 0x80).any()
