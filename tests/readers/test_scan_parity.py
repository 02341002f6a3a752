"""Whole scans against an oracle that answers row by row: files, stats, pages and pruning."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.api import create_in, open_in
from strandline.tableformat import rolling
from strandline.tableformat.storage import open_storage
from tests import filter_cases
from tests.tables import memory_url

NAMES = tuple(filter_cases.TYPES)


@pytest.mark.parametrize("paged", [False, True], ids=["inline", "paged"])
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_scans_give_exactly_the_rows_that_match(data: st.DataObject, paged: bool) -> None:  # noqa: FBT001
    """[E11, M2] Random tables of all types, random filters: pruning never changes the answer."""
    names = tuple(data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)))
    batches = data.draw(
        st.lists(st.lists(filter_cases.rows_of(names), min_size=1, max_size=4), max_size=5)
    )
    filters = data.draw(st.lists(filter_cases.filters(names, foreign=True), min_size=1, max_size=4))
    storage = open_storage(memory_url())
    with pytest.MonkeyPatch.context() as patch:
        if paged:
            for name, value in {"ROLL_AT": 2, "ROLL_STEP": 1, "LEAST_PAGE": 1}.items():
                patch.setattr(rolling, name, value)
        kinds = {name: filter_cases.TYPES[name] for name in names}
        table = create_in(storage, kinds, time_column=None)
        for batch in batches:
            table.append(filter_cases.table_of(batch).select(list(names)))
    rows: list[dict[str, Any]] = [row for batch in batches for row in batch]
    for expression in filters:
        expected = [i for i, row in enumerate(rows) if filter_cases.truth(expression, row) is True]
        scan = open_in(storage).scan(columns=["_seq"], filter=expression)
        assert scan.to_arrow().column("_seq").to_pylist() == expected, str(expression)
