"""How ranges are joined into requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat.stores.ranges import MAX_GAP, Span, plan_spans, take_ranges

CONTENT = bytes(range(250)) * 4
ranges = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 900), st.integers(0, 100))


def test_neighbours_share_a_request() -> None:
    """A gap of up to 64 KiB is read along; a larger one is not."""
    near = plan_spans([("a", 0, 10), ("a", 10 + MAX_GAP, 5), ("b", 0, 1)])
    far = plan_spans([("a", 0, 10), ("a", 11 + MAX_GAP, 5)])
    assert near == [Span("a", 0, MAX_GAP + 15, (0, 1)), Span("b", 0, 1, (2,))]
    assert far == [Span("a", 0, 10, (0,)), Span("a", 11 + MAX_GAP, 5, (1,))]


def test_a_joined_request_stays_below_the_limit() -> None:
    """Large reads stay apart, so that they run in parallel; a single one is never split."""
    spans = plan_spans([("a", 0, 60), ("a", 60, 60), ("a", 10, 20), ("a", 200, 500)], max_span=100)
    assert [(span.start, span.length) for span in spans] == [(0, 60), (60, 60), (200, 500)]


@given(st.lists(ranges, max_size=30), st.integers(0, 50), st.integers(1, 300))
def test_every_range_is_answered_exactly(
    requests: list[tuple[str, int, int]], gap: int, limit: int
) -> None:
    """Whatever is joined, each request gets its own bytes back."""
    spans = plan_spans(requests, max_gap=gap, max_span=limit)
    blobs = [CONTENT[span.start : span.start + span.length] for span in spans]
    expected = [CONTENT[start : start + length] for _, start, length in requests]
    assert take_ranges(requests, spans, blobs) == expected
    longest = max((length for _, _, length in requests), default=0)
    assert all(span.length <= max(limit, longest) for span in spans)
