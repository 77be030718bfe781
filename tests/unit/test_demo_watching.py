"""What a person sees while the demo waits, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from demo import watching
from demo.notices import Notices
from demo.watching import Stalled, Watch

pytestmark = pytest.mark.full

TABLE = "NAME    READY   AGE\nplain   {ready}   {age}s\n"


class Cluster:
    """Answers as kubectl would; the group is Ready from the third question on."""

    def __init__(self, ready_at: int) -> None:
        self.ready_at = ready_at
        self.asked = 0

    def kubectl(self, *_: str) -> str:
        self.asked += 1
        ready = "True " if self.asked >= self.ready_at else "False"
        return TABLE.format(ready=ready, age=self.asked)


class NoEvents:
    lines = ()


def watch(cluster: Any) -> Watch:
    events: Any = NoEvents()
    return Watch(cluster, "demo", Notices(events))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.01)
    monkeypatch.setattr(watching, "SHOW_S", 0.0)


def test_rows_are_shown_when_they_change_until_the_condition_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Cluster(ready_at=3)
    watch(cluster).until(lambda: cluster.asked >= 5, "five questions")
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["TIME", "NAME", "READY", "AGE"]
    assert [row.split()[3] for row in rows] == ["False", "True"]


def test_the_last_state_is_shown_where_the_condition_holds_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = Cluster(ready_at=2)
    watch(cluster).until(lambda: True, "nothing")
    assert cluster.asked == 2
    assert "True" in capsys.readouterr().out


def test_without_any_change_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "STALLED_S", 0.2)
    with pytest.raises(Stalled, match="no change for 0 s while waiting for: the moon"):
        watch(Cluster(ready_at=10**9)).until(lambda: False, "the moon")
