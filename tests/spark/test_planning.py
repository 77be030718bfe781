"""Plans hold every entry once, whatever the entries' IDs are."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from pelops.redis_core import EntryId, Node
from pyspark_redis_streams.batch.tasks import (
    Sample,
    Span,
    choose_cuts,
    cut_span,
    first_points,
    group_small,
    next_point,
)

NODE = Node("127.0.0.1", 6379)

any_ids = st.lists(
    st.builds(EntryId, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    min_size=1, max_size=60, unique=True,
).map(sorted)  # fmt: skip


def span_of(ids: list[EntryId], stream: str = "orders") -> Span:
    return Span(stream=stream, node=NODE, first=ids[0], last=ids[-1], entries=len(ids))


def sample(ids: list[EntryId], point: EntryId) -> Sample:
    at = bisect_left(ids, point)
    return Sample(point, tuple(ids[at : at + 32]))


def plan(ids: list[EntryId], parts: int) -> list[list[EntryId]]:
    """The entries of each range, by a stream that is this sorted list."""
    span = span_of(ids)
    samples = [sample(ids, point) for point in first_points(span, 16)]
    while len(samples) < 64:
        samples.append(sample(ids, next_point(span, samples)))
    wished = choose_cuts(span, samples, parts)
    cuts = [next(i for i in ids if i >= cut) for cut in wished if cut <= ids[-1]]
    return [
        [i for i in ids if r.first <= i < r.last or (r.keeps_last and i == r.last)]
        for r in cut_span(span, cuts)
    ]


@given(any_ids, st.integers(1, 20))
def test_each_entry_is_in_one_range(ids: list[EntryId], parts: int) -> None:
    ranges = plan(ids, parts)
    assert [i for single in ranges for i in single] == ids
    assert len(ranges) <= parts


def test_even_entries_make_even_ranges() -> None:
    ids = [EntryId(1_700_000_000_000 + i, 0) for i in range(8000)]
    sizes = [len(single) for single in plan(ids, 8)]
    assert len(sizes) == 8
    assert max(sizes) < 1.1 * 1000


def test_entries_of_one_millisecond_are_cut_by_sequence_number() -> None:
    ids = [EntryId(5, i) for i in range(1000)]
    sizes = [len(single) for single in plan(ids, 4)]
    assert len(sizes) == 4
    assert max(sizes) < 300


def test_a_burst_is_cut_finer_than_a_quiet_time() -> None:
    burst = [EntryId(100_000 + i // 50, i % 50) for i in range(50_000)]
    quiet = [EntryId(i * 50, 0) for i in range(2000)]
    sizes = [len(single) for single in plan(sorted({*burst, *quiet}), 8)]
    assert max(sizes) < 3 * sum(sizes) / len(sizes)


def test_small_streams_share_a_task() -> None:
    spans = [span_of([EntryId(1, 0), EntryId(2, 0)], f"s{i}") for i in range(100)]
    tasks = group_small([(span, cut_span(span, [])) for span in spans], entries_per_part=20)
    assert len(tasks) == 10
    assert sorted(r.stream for task in tasks for r in task.ranges) == sorted(
        span.stream for span in spans
    )
