"""What callers pass is checked before anything happens."""

from __future__ import annotations

from typing import Any

import pytest

import strandline
from strandline.tableformat.arguments import check_count, check_names, check_options
from strandline.tableformat.errors import InvalidInput
from tests.tables import Place, events, memory_url


@pytest.mark.parametrize("given", [-1, 2**63, 1.0, "1", True])
def test_a_number_that_is_none_is_refused(given: object) -> None:
    """Also one that 64 bits do not hold: it would fail somewhere inside."""
    with pytest.raises(InvalidInput, match="limit must be an integer of 0 or more"):
        check_count("limit", given)
    assert check_count("limit", 2**63 - 1) == 2**63 - 1
    assert check_count("limit", None) is None


@pytest.mark.parametrize("given", ["ab", 5, ["a", 1], [["a"]]])
def test_a_list_of_names_is_one(given: object) -> None:
    """One string would be taken for the list of its letters."""
    with pytest.raises(InvalidInput, match="columns is a list of names"):
        check_names("columns", given)
    assert check_names("columns", (name for name in "ab")) == ("a", "b")


def test_an_option_that_does_not_exist_is_named_with_those_that_do() -> None:
    """The message speaks of options, not of functions inside."""
    with pytest.raises(InvalidInput) as caught:
        check_options("wal", ["fsyncs"], {"fsync", "dir"})

    assert str(caught.value) == (
        "wal has no option 'fsyncs'; did you mean 'fsync'? It has dir, fsync."
    )


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda t: t.writer("w", flush_row=5), "a writer has no option 'flush_row'"),
        (lambda t: t.writer("w", wal={"folder": "x"}), "wal has no option 'folder'"),
        (lambda _: strandline.create_table(memory_url(), {"n": "int64"}, shard=2), "'shards'?"),
        (
            lambda _: strandline.create_table(
                memory_url(), {"n": "int64"}, kind="stream", row_id="n", ttl="60s", order="clamp"
            ),
            "a stream table has no option 'order'",
        ),
    ],
)
def test_every_door_says_which_option_it_does_not_know(make: Any, told: str) -> None:
    """[E1] No name of an inner function reaches the user."""
    with pytest.raises(InvalidInput) as caught:
        make(Place(memory_url()).create())

    assert told in str(caught.value)
    assert "()" not in str(caught.value)


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.read("n"),
        lambda t: t.read(count=2**63),
        lambda t: t.by_key(by="n", columns="n"),
        lambda t: t.by_key(by="n", limit=2**63),
        lambda t: t.by_key(by="n", limit=None),
        lambda t: t.history(limit=2**63),
        lambda t: t.evolve(drop="n"),
        lambda t: t.evolve(reorder=[1]),
    ],
)
def test_every_way_to_read_refuses_what_is_no_list_or_no_number(read: Any) -> None:
    """Never an error of Python's own from deep inside."""
    table = Place(memory_url()).create()
    table.append(events(0, 2))

    with pytest.raises(InvalidInput):
        read(table)
