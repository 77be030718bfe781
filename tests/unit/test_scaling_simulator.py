"""The simulated world keeps count, its verdict is right, and Pelops does well in it."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import scaling
from benchmarks.plot import Line, Panel, draw
from benchmarks.scaling_sim.contest import AUTOSCALERS, Results, compare, compete, run, targets
from benchmarks.scaling_sim.ours import NAME
from benchmarks.scaling_sim.outcome import Summary, judge, weighted_percentile
from benchmarks.scaling_sim.play import play
from benchmarks.scaling_sim.traces import TRACES, Trace, read_csv
from benchmarks.scaling_sim.workers import WorkerKind
from benchmarks.scaling_sim.world import World
from benchmarks.scaling_sim.wrong import wrong_decisions

pytestmark = pytest.mark.full

TUNED = "keda-tuned"


class _Script:
    """Sets the given numbers of replicas at the given seconds."""

    name = "script"

    def __init__(self, replicas: dict[int, int]) -> None:
        self._replicas = replicas

    def act(self, world: World) -> None:
        if world.now in self._replicas:
            world.scale(self._replicas[int(world.now)])


def _trace(arrivals: list[float], kind: WorkerKind | None = None, poison_every: int = 0) -> Trace:
    kind = kind or WorkerKind()
    return Trace(name="t", what="", arrivals=arrivals, kind=kind, poison_every=poison_every)


def _wrong(arrivals: list[float], replicas: dict[int, int]) -> dict[str, int]:
    trace = _trace(arrivals)
    return wrong_decisions(trace, play(trace, _Script(replicas)))


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_pelops_makes_no_wrong_decision(trace: Trace) -> None:
    outcome = judge(trace, run(trace, NAME, 0.0))
    assert outcome.wrong == {}
    assert outcome.unserved == 0
    assert outcome.longest_s <= 60
    assert outcome.above is None or outcome.above <= 1


@pytest.mark.parametrize("autoscaler", AUTOSCALERS)
def test_a_run_gives_the_same_numbers_again(autoscaler: str) -> None:
    trace = next(one for one in TRACES if one.name == "delete after ack")
    first, second = (judge(trace, run(trace, autoscaler, 0.5)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("autoscaler", AUTOSCALERS)
def test_every_entry_waits_once_and_is_begun_or_left(autoscaler: str) -> None:
    trace = next(one for one in TRACES if one.name == "sawtooth")
    world = run(trace, autoscaler, 0.25)
    begun = sum(world.waits.values())
    assert begun + sum(one.count for one in world.unserved()) == world.group.added
    assert world.group.added == sum(trace.arrivals)


def test_workers_do_as_much_as_their_rate_allows() -> None:
    world = play(_trace([1000.0] + [0.0] * 59), _Script({1: 2}))
    # Two workers that begin at 3 s, 50 entries per second each.
    assert max(world.waits) == pytest.approx(12.5, abs=1.0)
    assert world.busy_seconds == pytest.approx(20.0, abs=0.5)


def test_a_worker_that_finishes_and_reads_again_holds_entries_once() -> None:
    world = World(WorkerKind(rate=4, slots=1, starts_in_s=0.0))
    world.scale(2)
    world.pods[1].reads_at = 1000.0
    world.add(100)
    for _ in range(40):
        world.step()
        assert (world.holding, world.pending) == (1, 1)


def test_a_look_finds_a_worker_at_work_as_often_as_it_is() -> None:
    world = World(WorkerKind(rate=50, starts_in_s=0.0))
    world.scale(1)
    found = 0
    for _ in range(1000):
        world.add(5)  # a tenth of a second's work in each quarter
        world.step()
        found += world.holding
    assert found == pytest.approx(400, abs=10)


def test_a_worker_that_is_stopped_finishes_its_entries() -> None:
    slow = WorkerKind(rate=0.1, prefetch=1)
    world = play(_trace([2.0] + [0.0] * 99, slow), _Script({1: 2, 5: 0}))
    assert world.interrupted == 0
    assert world.requeued == 0


def test_an_entry_whose_handler_outlasts_the_grace_period_is_requeued() -> None:
    slow = WorkerKind(rate=0.02, prefetch=1)
    world = play(_trace([1.0] + [0.0] * 99, slow), _Script({1: 1, 5: 0}))
    assert world.interrupted == 1
    assert world.requeued == 1
    assert world.group.undelivered == 1


def test_poison_stays_pending_and_ends_as_dead_letters() -> None:
    trace = _trace([10.0] * 10 + [0.0] * 1300, poison_every=10)
    world = play(trace, _Script({1: 1}))
    assert max(one.pending for one in world.samples) >= 10
    assert (world.pending, world.dead_letters) == (0, 10)


def test_ending_all_workers_with_a_backlog_is_wrong() -> None:
    kinds = _wrong([60.0] * 60, {1: 1, 30: 0})
    assert kinds["ended the last worker while there were a backlog"] == 1


def test_staying_at_zero_for_more_than_a_minute_is_wrong() -> None:
    assert _wrong([1.0] + [0.0] * 120, {}) == {"zero while owed": 1}
    assert _wrong([1.0] + [0.0] * 120, {50: 1}) == {}


def test_one_worker_for_a_backlog_of_hundreds_is_wrong() -> None:
    kinds = _wrong([100.0] * 120, {1: 1})
    assert kinds == {"frozen while the backlog was in the hundreds": 1}


def test_the_maximum_for_nothing_is_wrong_after_the_longest_window() -> None:
    assert _wrong([0.0] * 400, {1: 20}) == {"the maximum held for nothing": 1}
    assert _wrong([0.0] * 400, {1: 20, 350: 1}) == {}


def test_shrinking_below_the_traffic_and_growing_back_is_flapping() -> None:
    swings = {1: 4, 100: 1, 150: 4, 200: 1, 250: 4}
    assert _wrong([120.0] * 300, swings)["flapping"] == 2
    # With nothing to do in between, the same moves are right.
    assert "flapping" not in _wrong([0.0] * 300, swings)


def test_a_percentile_weighs_values_by_how_often_they_came() -> None:
    assert weighted_percentile({1.0: 98, 5.0: 1, 9.0: 1}, 99) == 5.0
    assert weighted_percentile({}, 99) == 0.0


def _summary(**changes: float | dict[str, int] | None) -> Summary:
    usual: dict[str, float | dict[str, int] | None] = {
        "late": 100.0,
        "p99_s": 1.0,
        "longest_s": 20.0,
        "unserved": 0,
        "replica_seconds": 1000.0,
        "idle_share": 0.5,
        "interrupted": 0,
        "writes": 4,
        "wrong": {},
        "above": None,
    }
    return Summary(**{**usual, **changes})  # type: ignore[arg-type]


def _results(**traces: tuple[Summary, Summary]) -> Results:
    others = {name: _summary() for name in AUTOSCALERS}
    return {trace: {**others, NAME: ours, TUNED: tuned} for trace, (ours, tuned) in traces.items()}


def test_one_trace_is_compared_only_where_tuned_keda_is_good() -> None:
    much = _summary(replica_seconds=5000.0)
    ratios = compare(
        _results(
            good=(_summary(replica_seconds=1100.0), _summary()),
            flapping=(much, _summary(wrong={"flapping": 2})),
            slow=(much, _summary(longest_s=61.0)),
        )
    )
    assert ratios.worst_trace == "good"
    assert ratios.worst_where_tuned_is_good == pytest.approx(1.1)


def test_a_missed_target_is_reported() -> None:
    wrong = _results(one=(_summary(replica_seconds=100.0, wrong={"flapping": 2}), _summary()))
    assert {one.name: one.met for one in targets(wrong)} == {
        "replica_seconds_to_tuned_keda": True,
        "worst_trace_to_tuned_keda": True,
        "late_to_tuned_keda": False,
        "late_where_tuned_keda_serves": False,
        "wrong_decisions": False,
    }


def test_the_work_may_be_shared_by_any_number_of_processes() -> None:
    trace = next(one for one in TRACES if one.name == "SETID back")
    late = sum(judge(trace, run(trace, NAME, phase / 2)).late for phase in range(2))
    assert compete([trace], 2)[trace.name][NAME].late == late


def test_a_recorded_trace_is_read_with_its_gaps(tmp_path: Path) -> None:
    path = tmp_path / "monday.csv"
    path.write_text("second,arrivals\n0,5\n3,2.5\n")
    trace = read_csv(path)
    assert (trace.name, trace.arrivals) == ("monday", [5.0, 0.0, 0.0, 2.5])


@pytest.mark.parametrize("text", ["", "second,arrivals\n", "0,-1\n", "-1,1\n", "a,b\n"])
def test_a_recorded_trace_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError):
        read_csv(path)


def test_the_command_plays_a_recorded_trace_and_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = tmp_path / "monday.csv"
    recorded.write_text("".join(f"{second},20\n" for second in range(200)))
    wanted = ["--json", "--quick", "--only", "monday", "--trace", str(recorded)]
    with pytest.raises(SystemExit) as ended:
        scaling.main([*wanted, "--plot", str(tmp_path / "pictures")])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended.value.code == (0 if all(one["met"] for one in report["targets"]) else 1)
    assert set(report["figures"]["traces"]["monday"]) >= set(AUTOSCALERS)
    picture = ElementTree.parse(tmp_path / "pictures" / "monday.svg")
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"entries owed", "replicas", *AUTOSCALERS} <= set(texts)


def test_a_trace_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        scaling.main(["--only", "tuesday"])
    assert "tuesday" in str(ended.value.code)


def test_a_picture_of_nothing_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "empty.svg"
    draw([Panel(title="<none>", lines=[Line(label="&", points=[])] * 2)], path, title="a < b")
    texts = [element.text for element in ElementTree.parse(path).iter()]
    assert {"a < b", "<none>", "&"} <= set(texts)


def test_a_picture_depends_only_on_what_is_drawn(tmp_path: Path) -> None:
    lines = [Line(label="l", points=[(0.0, 1.0), (1.0, 2.0)], is_step=True)]
    paths = [tmp_path / "one.svg", tmp_path / "other.svg"]
    for path in paths:
        draw([Panel(title="t", lines=lines)], path, title="Growth")
    one, other = (path.read_text() for path in paths)
    assert one == other
