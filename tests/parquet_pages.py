"""The pages of a Parquet file, found by reading their headers one after the other."""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_LONG_LIST: Final = 15


class _Thrift:
    """Just enough of Thrift's compact protocol to read a structure as a dict of field ids."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def structure(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        field = 0
        while (head := self.take(1)[0]) != _STOP:
            field = field + (head >> 4) if head >> 4 else self.zigzag()
            found[field] = self.value(head & 0x0F)
        return found

    def value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self.take(1)[0]
        if kind == _DOUBLE:
            return struct.unpack("<d", self.take(8))[0]
        if kind == _BINARY:
            return self.take(self.varint())
        if kind in (_LIST, _SET):
            head = self.take(1)[0]
            size = self.varint() if head >> 4 == _LONG_LIST else head >> 4
            return [self.value(head & 0x0F) for _ in range(size)]
        return self.structure() if kind == _STRUCT else self.zigzag()


def rows_per_page(data: bytes) -> list[list[int]]:
    """For each column chunk, the number of values in each of its data pages."""
    footer = pq.read_metadata(pa.BufferReader(data))
    out = []
    for group in range(footer.num_row_groups):
        for leaf in range(footer.num_columns):
            chunk = footer.row_group(group).column(leaf)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            reader, rows = _Thrift(data, start), []
            while reader.at < start + chunk.total_compressed_size:
                header = reader.structure()
                reader.take(header[3])
                if (page := header.get(5) or header.get(8)) is not None:
                    rows.append(page[1])
            out.append(rows)
    return out
