"""Asks Sentinels for the master or a replica, and cluster nodes for the owners of slots."""

from __future__ import annotations

from collections.abc import Sequence

from pelops.redis_core.endpoint import Node
from pelops.redis_core.errors import RedisUnavailable
from pelops.redis_core.sentinel_answers import MasterUnknown, SentinelAnswers, usable_replicas
from pelops.redis_core.slots import SLOT_MAP, SlotMap
from pyspark_redis_streams.errors import NotPermitted, OptionError, ServerError
from pyspark_redis_streams.redis.link import Away, NodeConnection
from pyspark_redis_streams.redis.servers import ServerSettings


def read_slots(settings: ServerSettings, known: Sequence[Node]) -> SlotMap:
    """The cluster's own view, from the node that the options name or from one known before.

    Raises Away when none of them answers.
    """
    seeds = [Node(settings.host, settings.port), *known]
    for position, seed in enumerate(seeds):
        try:
            return _slots_reported_by(seed, settings)
        except Away:
            if position == len(seeds) - 1:
                raise
    raise AssertionError("there is always the node that the options name")


def _slots_reported_by(seed: Node, settings: ServerSettings) -> SlotMap:
    link = NodeConnection(seed, settings)
    try:
        return SlotMap.parse(link.ask(*SLOT_MAP), seed)
    except RedisUnavailable as error:
        raise Away(str(error)) from error
    finally:
        link.close()


def sentinel_address(answers: SentinelAnswers, settings: ServerSettings, *, replica: bool) -> Node:
    """Where the master is, or a replica of it that is up; the master if there is none.

    Raises Away when no Sentinel answers, OptionError when none knows the master's name.
    """
    problems: list[tuple[Node, Exception]] = []
    for node in answers.order:
        link = NodeConnection(node, settings, is_sentinel=True)
        try:
            return _ask_sentinel(link, answers, replica=replica)
        except (Away, NotPermitted, RedisUnavailable) as error:
            problems.append((node, error))
        finally:
            link.close()
    if all(isinstance(error, MasterUnknown) for _, error in problems):
        raise OptionError(
            f"option 'sentinelMaster' is '{settings.sentinel_master}', a name that no Sentinel of"
            " option 'sentinels' watches"
        )
    raise Away(str(answers.failure(problems)))


def _ask_sentinel(link: NodeConnection, answers: SentinelAnswers, *, replica: bool) -> Node:
    address = link.ask(*answers.master_command)
    try:
        others = link.ask(*answers.others_command)
    except ServerError:
        others = None  # those that the options name must do
    master = answers.master(link.node, address, others)
    if not replica:
        return master
    return next(iter(usable_replicas(link.ask(*answers.replicas_command))), master)
