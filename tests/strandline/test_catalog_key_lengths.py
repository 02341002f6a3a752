"""Names that are too long for an object store, together with what lies around them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline
from strandline.catalog_key_lengths import IN_A_TABLE, MOST_KEY_BYTES
from strandline.tableformat import names, paths
from strandline.tableformat.storage import open_storage
from strandline.tableformat.values import INT64_MAX
from strandline.tableformat.windows import Window
from tests.strandline.test_catalog import COLUMNS
from tests.tables import memory_url

if TYPE_CHECKING:
    from pathlib import Path


def longest_name(error: str) -> int:
    """What an error says of how long a name may be."""
    found = re.search(r"at most (\d+) bytes", error)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("depth", [0, 10, 25])
def test_a_name_that_leaves_no_room_is_refused_and_the_longest_one_works(depth: int) -> None:
    """[O5] [CAT-3] Whatever the error promises, no key in the store is longer than 1,024 bytes."""
    url = memory_url() + "/deep" * depth
    catalog = strandline.Catalog(url)
    with pytest.raises(strandline.InvalidInput, match="was not created") as refused:
        catalog.create_namespace("N" * 512)
    namespace = "N" * longest_name(str(refused.value))
    with pytest.raises(strandline.InvalidInput, match="was not created"):
        catalog.create_namespace(namespace + "N")
    catalog.create_namespace(namespace)
    with pytest.raises(strandline.InvalidInput, match="was not created") as refused:
        catalog.create_table((namespace, "T" * 512), COLUMNS)
    assert catalog.list_tables(namespace) == []
    table = "T" * longest_name(str(refused.value))

    catalog.create_table((namespace, table), COLUMNS).append([{"n": 1}])

    assert catalog.open_table((namespace, table)).scan().count() == 1
    catalog.create_namespace("short")
    catalog.rename_table((namespace, table), (namespace, "R" * 124))
    root = url.partition("://")[2].partition("/")[2]
    keys = [f"{root}/{path}".lstrip("/") for path, _ in open_storage(url).walk("")]
    assert max(map(len, keys)) <= MOST_KEY_BYTES


def test_disks_take_names_of_any_length(tmp_path: Path) -> None:
    """[O5] [CAT-3] They limit single components, and those are short."""
    catalog = strandline.Catalog(tmp_path)
    catalog.create_table(("N" * 512, "T" * 512), COLUMNS).append([{"n": 1}])
    assert catalog.open_table(("N" * 512, "T" * 512)).scan().count() == 1


def test_the_room_for_a_tables_own_files_is_enough() -> None:
    """[CAT-3] The longest paths that a table writes fit into what is left for them."""
    window = Window(253_402_300_800_000 - 86_400_000, 86_400_000)
    longest = paths.segment_path(window, 1023, "compact", INT64_MAX, "0" * 16)
    assert len(longest) <= IN_A_TABLE
    assert len(paths.segment_page_path(INT64_MAX, "0" * 16)) <= IN_A_TABLE


@given(st.integers(1, 512))
def test_the_length_of_an_encoded_name_is_known(size: int) -> None:
    """[CAT-3] By its bytes alone."""
    assert names.encoded_length(size) == len(names.folder_name("N" * size))
