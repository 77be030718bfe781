"""What the benchmark of looks says of its measurements, and what it may be asked."""

import pytest

from benchmarks.observing import Outcome, long_to_short, main

pytestmark = pytest.mark.full


def test_the_longest_stream_is_compared_with_the_shortest_in_the_median() -> None:
    assert long_to_short({10: [1, 2, 90], 1000: [50, 50, 50], 100_000: [3, 3, 1]}) == 1.5


def test_the_worst_p99_counts_and_one_slow_observation_does_not() -> None:
    by_case = {
        "known": {10: [0.5] * 100, 1000: [*[0.5] * 99, 30.0]},
        "unknown": {10: [1.0] * 100, 1000: [*[0.75] * 98, 1.25, 1.25]},
    }
    outcome = Outcome(by_case=by_case, memory_gib=1.0, is_preferred=True)
    assert outcome.longest_p99_ms == 1.25
    assert outcome.worst_ratio == 1.0


@pytest.mark.parametrize(
    "arguments",
    [["--entries", "10000"], ["--entries", "0"], ["--fields", "0"], ["--fields", "51"]],
)
def test_a_stream_in_which_no_case_fits_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
