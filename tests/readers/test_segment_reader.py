"""Reading a segment by ranges: only what a scan needs is fetched, and that is enough."""

from __future__ import annotations

from itertools import combinations

import pytest

from strandline.api import create_in
from strandline.readers import split_reader
from strandline.tableformat.storage import open_storage
from tests.tables import SCHEMA, events, memory_url


@pytest.mark.parametrize("options", [{}, {"zone_pages": True}, {"sort_by": ["user"]}], ids=str)
def test_any_columns_of_a_large_file_can_be_read(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E10] Chunks side by side, or with small ones between them that are not fetched."""
    monkeypatch.setattr(split_reader, "WHOLE_FILE_BYTES", 0)
    storage = open_storage(memory_url())
    table = create_in(storage, SCHEMA, time_column="ts", row_group_rows=1_024, **options)
    rows = events(0, 3_000)
    table.append(rows)

    for count in (1, 2, 3, 4):
        for names in combinations(SCHEMA.names, count):
            assert table.scan(list(names)).to_arrow().equals(rows.select(names))
