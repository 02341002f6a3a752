"""Opaque payloads: bytes in, the same bytes out, and decoders by version."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

import strandline
from tests.tables import memory_url


@pytest.fixture
def registry() -> strandline.PayloadRegistry:
    """Version 1 is text, version 2 is JSON."""
    made = strandline.PayloadRegistry()
    made.register(1, bytes.decode, str.encode)
    made.register(2, json.loads)
    return made


def test_payloads_of_many_versions_come_back_in_the_order_of_the_rows(
    registry: strandline.PayloadRegistry,
) -> None:
    """[T7] The table keeps the bytes; the registry knows what they mean."""
    table = strandline.create_table(memory_url(), {"version": "int32", "payload": "binary"})
    stored = [(1, b"a"), (2, b'{"n": 1}'), (1, b"b"), (2, b"[]"), (None, None), (9, None)]
    table.append([{"version": v, "payload": p} for v, p in stored])

    found = table.scan().to_arrow()

    assert registry.decode_column(found) == ["a", {"n": 1}, "b", [], None, None]
    assert found.column("payload").to_pylist() == [p for _, p in stored]


def test_an_unknown_version_is_a_clear_error(registry: strandline.PayloadRegistry) -> None:
    """[T7] Nothing is guessed, nothing is decoded in part; the error says what is known."""
    decoded: list[bytes] = []
    registry.register(3, decoded.append)
    rows = pa.table({"version": [3, 7], "payload": [b"x", b"y"]})

    with pytest.raises(strandline.UnknownPayload, match=r"version 7.*1, 2, 3") as caught:
        registry.decode_column(rows)
    with pytest.raises(strandline.UnknownPayload, match="no version"):
        registry.decode(None, b"x")

    assert (caught.value.version, caught.value.known) == (7, [1, 2, 3])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert decoded == []


def test_encoding_needs_an_encoder(registry: strandline.PayloadRegistry) -> None:
    """A program that only reads old versions registers no way to write them."""
    assert registry.encode(1, "é") == "é".encode()
    assert registry.decode(1, registry.encode(1, "é")) == "é"
    with pytest.raises(strandline.InvalidInput, match="without an encoder"):
        registry.encode(2, {})
    with pytest.raises(strandline.UnknownPayload):
        registry.encode(8, "x")


def test_a_version_has_one_meaning(registry: strandline.PayloadRegistry) -> None:
    """[T7] Registering twice would make old bytes mean something new."""
    with pytest.raises(strandline.InvalidInput, match="already"):
        registry.register(1, bytes.decode)
    with pytest.raises(strandline.InvalidInput, match="integer"):
        registry.register("1", bytes.decode)  # type: ignore[arg-type]
    with pytest.raises(strandline.InvalidInput, match="no column 'body'"):
        registry.decode_column(pa.table({"version": [1]}), "body")
