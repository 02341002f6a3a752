"""Names that people choose cannot escape, collide or nest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.safe_names import (
    COMPONENT,
    check_name,
    decode_name,
    encode_name,
)
from strandline.tableformat.stores.urls import check_path
from tests.hostile_names import HOSTILE, REFUSED

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)


def test_hostile_names_have_paths_of_their_own() -> None:
    """[O5] [STR-3] None escapes, none is another's on a disk that ignores case, none nests."""
    paths = {name: encode_name(check_name(name)) for name in HOSTILE}

    assert len({path.casefold() for path in paths.values()}) == len(HOSTILE)
    for name, path in paths.items():
        assert decode_name(path) == name
        assert check_path(f"{path}.log")
        assert all(len(part) <= COMPONENT for part in path.split("/"))
    files = [f"{path}.log" for path in paths.values()]
    assert not any(a != b and a.startswith(f"{b}/") for a in files for b in files)


@given(names, names)
def test_two_names_never_share_a_path(one: str, other: str) -> None:
    """[O5] [STR-3] Encoding goes back and forth, whatever the text."""
    if one in (".", "..") or other in (".", ".."):
        return
    assert decode_name(encode_name(one)) == one
    assert (encode_name(one).casefold() == encode_name(other).casefold()) == (one == other)


@pytest.mark.parametrize("name", [*REFUSED, None, 7, b"a"])
def test_names_that_are_none_are_refused(name: object) -> None:
    """[O5] Said before anything is touched."""
    with pytest.raises(InvalidInput, match="Nothing was changed"):
        check_name(name)


@pytest.mark.parametrize("path", ["A", "=", "=A", "=zz", "a/b", "=o0/e0", "../x", "=c4"])
def test_paths_that_no_name_has_are_refused(path: str) -> None:
    """[STR-3] Every name has one spelling."""
    with pytest.raises(CorruptTable):
        decode_name(path)
