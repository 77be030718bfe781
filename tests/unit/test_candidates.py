"""Who is asked when many nodes may know an answer, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pelops.domain.endpoint import Node
from pelops.errors import RedisUnavailable
from pelops.redis_core.candidates import (
    BUDGET_S,
    MOST_ASKED,
    MOST_AT_ONCE,
    NEXT_AFTER_S,
    NoAnswer,
    first_answer,
)
from tests.virtual_time import run_virtually

NODES = [Node(f"node-{number}", 6379) for number in range(300)]


def now() -> float:
    return asyncio.get_running_loop().time()


class Cluster:
    """Nodes that are silent, but for some that answer or fail at once."""

    def __init__(self, *, answers: tuple[int, ...] = (), fails: tuple[int, ...] = ()) -> None:
        self._answers = {NODES[number] for number in answers}
        self._fails = {NODES[number] for number in fails}
        self.asked: list[Node] = []
        self.under_way = 0
        self.most_at_once = 0

    async def ask(self, node: Node) -> str:
        self.asked.append(node)
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            if node in self._fails:
                raise RedisUnavailable("refused")
            if node not in self._answers:
                await asyncio.Event().wait()
            return f"the answer of {node}"
        finally:
            self.under_way -= 1


def ask_all(ask: Callable[[Node], Awaitable[str]]) -> tuple[str, float]:
    async def scenario() -> tuple[str, float]:
        try:
            node, answer = await first_answer(NODES, ask)
            assert answer == f"the answer of {node}"
        except NoAnswer as error:
            return str(error), now()
        return answer, now()

    return run_virtually(scenario())


def test_the_first_node_is_the_only_one_asked_when_it_answers() -> None:
    cluster = Cluster(answers=(0, 1))
    assert ask_all(cluster.ask) == ("the answer of node-0:6379", 0.0)
    assert cluster.asked == NODES[:1]


def test_a_node_that_fails_is_passed_over_at_once() -> None:
    cluster = Cluster(fails=(0, 1, 2), answers=(3,))
    assert ask_all(cluster.ask) == ("the answer of node-3:6379", 0.0)


def test_a_silent_node_delays_the_next_answer_by_half_a_second() -> None:
    cluster = Cluster(answers=(1,))
    assert ask_all(cluster.ask) == ("the answer of node-1:6379", NEXT_AFTER_S)
    assert cluster.under_way == 0


def test_hundreds_of_silent_nodes_take_no_longer_than_the_budget() -> None:
    cluster = Cluster()
    problem, took_s = ask_all(cluster.ask)
    assert took_s == BUDGET_S
    assert "node-0:6379: no answer in time" in problem
    assert cluster.most_at_once == MOST_AT_ONCE
    assert cluster.under_way == 0


def test_no_more_nodes_are_asked_than_the_budget_says() -> None:
    cluster = Cluster(fails=tuple(range(300)))
    problem, took_s = ask_all(cluster.ask)
    assert took_s == 0.0
    assert problem.count("refused") == 3
    assert problem.endswith(f" and {MOST_ASKED - 3} more")
    assert cluster.asked == NODES[:MOST_ASKED]


def test_a_programming_error_does_not_count_as_a_node_failure() -> None:
    async def ask(_: Node) -> str:
        raise ValueError("a mistake of ours")

    with pytest.raises(ValueError, match="ours"):
        ask_all(ask)


def test_errors_of_unanswered_requests_keep_no_tracebacks() -> None:
    """Errors with tracebacks would be parts of reference cycles, which are collected seldom."""
    failing = Cluster(fails=tuple(range(MOST_ASKED)))

    async def scenario() -> None:
        await first_answer(NODES, failing.ask)

    with pytest.raises(NoAnswer) as caught:
        run_virtually(scenario())
    problems = caught.value.problems
    assert len(problems) == MOST_ASKED
    assert [problem.__traceback__ for _, problem in problems] == [None] * MOST_ASKED
