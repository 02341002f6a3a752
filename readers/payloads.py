"""Payloads that the table keeps as bytes, and the functions that know what they mean.

The table stores a payload and a version beside it and looks at neither. Programs register one
decoder for each version they can read; a version nobody registered is an error, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.tableformat.errors import InvalidInput, UnknownPayload

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class _Codec:
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None


class PayloadRegistry:
    """Decoders, and where they exist encoders, by version."""

    def __init__(self) -> None:
        self._codecs: dict[int, _Codec] = {}

    def __repr__(self) -> str:
        return f"<strandline.PayloadRegistry versions {self.versions}>"

    @property
    def versions(self) -> list[int]:
        """The versions that are known."""
        return sorted(self._codecs)

    def register(
        self,
        version: int,
        decode: Callable[[bytes], Any],
        encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        """Say how payloads of a version are read, and written if at all."""
        if type(version) is not int:
            raise InvalidInput(f"a payload's version is an integer, not {version!r}")
        if version in self._codecs:
            raise InvalidInput(
                f"payload version {version} has a decoder already; stored bytes have one meaning"
            )
        self._codecs[version] = _Codec(decode, encode)

    def decode(self, version: int | None, payload: bytes | None) -> Any:
        """What one payload means; None stays None."""
        return None if payload is None else self._codec(version).decode(payload)

    def encode(self, version: int, value: Any) -> bytes:
        """The bytes of a value in this version."""
        codec = self._codec(version)
        if codec.encode is None:
            raise InvalidInput(f"payload version {version} was registered without an encoder")
        return codec.encode(value)

    def decode_column(
        self, table: pa.Table, payload: str = "payload", version: str = "version"
    ) -> list[Any]:
        """Every row's payload, decoded, in the order of the rows.

        All versions are looked up before the first payload is decoded.
        """
        for name in (payload, version):
            if name not in table.column_names:
                raise InvalidInput(f"there is no column {name!r} to decode")
        payloads, versions = table.column(payload).to_pylist(), table.column(version).to_pylist()
        rows_of: dict[int | None, list[int]] = {}
        for row, (found, data) in enumerate(zip(versions, payloads, strict=True)):
            if data is not None:
                rows_of.setdefault(found, []).append(row)
        decoders = {found: self._codec(found).decode for found in rows_of}
        out: list[Any] = [None] * len(payloads)
        for found, rows in rows_of.items():
            decoded = map(decoders[found], (payloads[row] for row in rows))
            for row, value in zip(rows, decoded, strict=True):
                out[row] = value
        return out

    def _codec(self, version: int | None) -> _Codec:
        codec = None if version is None else self._codecs.get(version)
        if codec is None:
            raise UnknownPayload(version, self.versions)
        return codec
