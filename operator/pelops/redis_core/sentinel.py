"""Finds the master by asking the Sentinels."""

from __future__ import annotations

from dataclasses import replace

from pelops.domain.endpoint import Node, RedisEndpoint, Sentinel
from pelops.errors import AuthenticationFailed, PelopsError
from pelops.redis_core.candidates import NoAnswer, first_answer
from pelops.redis_core.errors import translate_reply
from pelops.redis_core.sentinel_answers import SentinelAnswers
from pelops.redis_core.transport import Command, Login, NodeChannel, Reply


class MasterFinder:
    """Asks one Sentinel after the other, for a few seconds in total.

    Without credentials of their own, Sentinels get those of the data servers. Either are sent only
    to a Sentinel that requires authentication.
    """

    def __init__(self, endpoint: RedisEndpoint, sentinel: Sentinel, login: Login) -> None:
        self._answers = SentinelAnswers(sentinel.master_name, sentinel.nodes)
        has_own = sentinel.password is not None
        self._known_user = replace(
            login,
            username=sentinel.username if has_own else endpoint.username,
            password=sentinel.password if has_own else endpoint.password,
            grant=(sentinel.grant if has_own else None) or login.grant,
            db=0,
            needs_master=False,
        )
        self._bare = replace(self._known_user, username=None, password=None)

    async def __call__(self) -> Node:
        """The master's address.

        When no Sentinel returns it, raises RedisUnavailable, or the kind of error that all of them
        have in common.
        """
        try:
            _, master = await first_answer(self._answers.order, self._query)
        except NoAnswer as error:
            raise self._answers.failure(error.problems) from error
        return master

    async def _query(self, node: Node) -> Node:
        try:
            address, others = await self._exchange(node, self._bare)
        except AuthenticationFailed:
            if not self._known_user.password:
                raise
            address, others = await self._exchange(node, self._known_user)
        if isinstance(address, PelopsError):
            raise address
        if isinstance(address, Exception):
            raise translate_reply(address, command="SENTINEL", key=None, writes=False)
        return self._answers.master(node, address, others)

    async def _exchange(self, node: Node, login: Login) -> list[Reply]:
        async def locate() -> Node:
            return node

        channel = NodeChannel(locate, login, connections=1)
        questions = (self._answers.master_command, self._answers.others_command)
        try:
            return await channel.exchange([Command(parts=parts) for parts in questions])
        finally:
            await channel.close()
