"""The first answer from several nodes, within limits on nodes and time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from pelops.domain.endpoint import Node
from pelops.errors import PelopsError

Answer = TypeVar("Answer")

BUDGET_S: Final = 6.0  # a little more than the time-out of one node
NEXT_AFTER_S: Final = 0.5  # ask the next node when one has not answered for so long
MOST_AT_ONCE: Final = 4
MOST_ASKED: Final = 16  # a hostile server may name any number
_REPORTED: Final = 3


class NoAnswer(Exception):
    """No node answered within the budget; `problems` has the error of each node that was asked.

    The message names the first few of them.
    """

    def __init__(self, problems: list[tuple[Node, Exception]]) -> None:
        reported = "; ".join(f"{node}: {problem}" for node, problem in problems[:_REPORTED])
        more = f" and {len(problems) - _REPORTED} more" if len(problems) > _REPORTED else ""
        super().__init__(reported + more)
        self.problems = problems


async def first_answer(
    nodes: Sequence[Node], ask: Callable[[Node], Awaitable[Answer]]
) -> tuple[Node, Answer]:
    """The node that answered first, and its answer. Nodes are asked in the given order.

    The next node is asked when one fails, or does not answer for `NEXT_AFTER_S`. Raises NoAnswer.
    Errors of `ask` other than PelopsError are raised at once.
    """
    problems: list[tuple[Node, Exception]] = []
    asked: dict[asyncio.Task[Any], Node] = {}
    waiting = list(reversed(nodes[:MOST_ASKED]))
    clock = asyncio.get_running_loop().time
    end = clock() + BUDGET_S
    try:
        while (waiting or asked) and (left_s := end - clock()) > 0:
            if waiting and len(asked) < MOST_AT_ONCE:
                node = waiting.pop()
                asked[asyncio.ensure_future(ask(node))] = node
                left_s = min(left_s, NEXT_AFTER_S) if waiting else left_s
            done, _ = await asyncio.wait(asked, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                node = asked.pop(task)
                try:
                    return node, task.result()
                except PelopsError as error:
                    # Its traceback refers to this frame and so to this list: a reference cycle.
                    problems.append((node, error.with_traceback(None)))
    finally:
        await _end(asked)
    problems += [(node, TimeoutError("no answer in time")) for node in asked.values()]
    raise NoAnswer(problems)


async def _end(tasks: dict[asyncio.Task[Any], Node]) -> None:
    for task in tasks:
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    if tasks:
        await asyncio.wait(tasks, timeout=0.1)
