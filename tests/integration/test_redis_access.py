"""The least ACL of the operator suffices for all that it does, and each word of it is needed."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

import pytest

from local_cluster.redis_servers import ClusterServers, RedisServers, StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.state import StickyCondition
from pelops.errors import NoSuchGroup, NotOurs, PermissionDenied
from pelops.redis_core.server import Flavour, Server
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import destroy_group, provision_group, release_group
from pelops.redis_streams.group.maintenance import (
    clear_sticky,
    expire_dead_letters,
    remember_position,
    repair_lag,
    trim_retry_stream,
)
from pelops.redis_streams.inspection.dead_letters import list_letters
from pelops.redis_streams.inspection.group_view import GroupInspection
from pelops.redis_streams.redrive.moves import finish_redrive, move_letters, start_redrive
from tests.integration.redis_adapter import (
    an_owner,
    connected,
    endpoint_of,
    writes_so_far,
)
from tests.integration.redriving import a_redrive


async def _redrive(server: Server) -> None:
    context = a_redrive(KEYS)
    await start_redrive(server, context)
    await move_letters(server, context, [], after=EntryId.MIN, through=EntryId.MAX)
    await finish_redrive(server, context, forget=True)


KEYS = derive_keys("orders:ev ents", "proc*ssing", dead_letter="{orders:ev ents}:given-up")
OWNER = an_owner()
FEATURES: Final = {Feature.DELETE_POLICY, Feature.RETENTION, Feature.SCALING}
RULES: Final = acl_rules(KEYS, UserRole.OPERATOR, FEATURES)
GRANTS: Final = [rule for rule in RULES if rule[0] in "~+"]
USER: Final = "pelops"
PASSWORD: Final = "sesame"

Act = Callable[[Server], Awaitable[object]]
ACTS: Final[dict[str, Act]] = {
    "observe": lambda server: observe_group(server, KEYS),
    "provision": lambda server: provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER),
    "observe again": lambda server: observe_group(server, KEYS),
    "repair": lambda server: repair_lag(server, KEYS, OWNER.uid),
    "remember": lambda server: remember_position(server, KEYS, OWNER),
    "expire": lambda server: expire_dead_letters(server, KEYS, OWNER, kept=timedelta(days=1)),
    "redrive": _redrive,
    "trim": lambda server: trim_retry_stream(server, KEYS, OWNER),
    "acknowledge": lambda server: clear_sticky(server, KEYS, OWNER, list(StickyCondition)),
    "release": lambda server: release_group(server, KEYS, OWNER),
    "provision again": lambda server: provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER),
    "destroy": lambda server: destroy_group(server, KEYS, OWNER),
}


def grant(servers: RedisServers, rules: Sequence[str]) -> None:
    servers.acl_setuser(USER, "reset", "on", f">{PASSWORD}", *rules)


async def denials(servers: RedisServers) -> list[PermissionDenied]:
    """What the user is refused of all that the operator does; not even to know the server."""
    denied: list[PermissionDenied] = []
    async with connected(endpoint_of(servers, username=USER, password=PASSWORD)) as server:
        for act in ACTS.values():
            try:
                await act(server)
            except PermissionDenied as error:
                denied.append(error)
            except (NotOurs, NoSuchGroup):
                continue  # what an earlier refusal left undone
    return denied


async def test_the_least_rules_suffice(empty_redis: StandaloneServers) -> None:
    grant(empty_redis, RULES)
    assert await denials(empty_redis) == []


async def test_the_least_rules_suffice_on_a_cluster(empty_cluster: ClusterServers) -> None:
    grant(
        empty_cluster,
        acl_rules(
            KEYS,
            UserRole.OPERATOR,
            FEATURES | {Feature.CLUSTER},
        ),
    )
    assert await denials(empty_cluster) == []


async def test_every_word_is_needed_and_named_when_it_is_missing(
    empty_redis: StandaloneServers,
) -> None:
    for word in GRANTS:
        empty_redis.flush()
        grant(empty_redis, [rule for rule in RULES if rule != word])
        if word in {"+info", "+xrevrange"}:
            continue  # only a part needs them: see below
        if word == "+eval":
            empty_redis.cli("SCRIPT", "FLUSH")
        denied = await denials(empty_redis)
        assert denied, f"{word} is not needed"
        for error in denied:
            assert error.command is not None
            if word.startswith("+"):
                assert f"+{error.command}" == word
            else:
                assert error.key is not None


async def test_without_xrevrange_inspections_alone_fail(empty_redis: StandaloneServers) -> None:
    grant(empty_redis, [rule for rule in RULES if rule != "+xrevrange"])
    assert await denials(empty_redis) == []
    for rules in (RULES, [rule for rule in RULES if rule != "+xrevrange"]):
        grant(empty_redis, rules)
        async with connected(endpoint_of(empty_redis, username=USER, password=PASSWORD)) as server:
            inspection = GroupInspection(server=server, keys=KEYS)
            if "+xrevrange" in rules:
                assert (await list_letters(inspection)).letters == 0
            else:
                with pytest.raises(PermissionDenied):
                    await list_letters(inspection)


async def test_without_info_the_server_stays_unknown_and_all_works(
    empty_redis: StandaloneServers,
) -> None:
    grant(empty_redis, [rule for rule in RULES if rule != "+info"])
    async with connected(endpoint_of(empty_redis, username=USER, password=PASSWORD)) as server:
        assert server.kind.flavour == Flavour.UNKNOWN
        for act in ("provision", "remember", "observe"):
            await ACTS[act](server)
        await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
        await ACTS["provision"](server)


async def test_a_missing_permission_stops_everything_before_a_write(
    empty_redis: StandaloneServers,
) -> None:
    for word in ("+xgroup|create", "+xadd", "+xdel", "+hset"):
        empty_redis.flush()
        grant(empty_redis, [rule for rule in RULES if rule != word])
        before = writes_so_far(empty_redis)
        async with connected(endpoint_of(empty_redis, username=USER, password=PASSWORD)) as server:
            with pytest.raises(PermissionDenied, match=word[1:].replace("|", r"\|")):
                await ACTS["provision"](server)
        assert writes_so_far(empty_redis) == before


@pytest.mark.parametrize("role", list(UserRole))
async def test_no_role_can_write_to_foreign_keys(
    empty_redis: StandaloneServers, role: UserRole
) -> None:
    grant(empty_redis, acl_rules(KEYS, role, {Feature.DELETE_POLICY, Feature.RECOVERY}))
    # The wildcards of Pelops' own names must not match other names.
    for key in ("orders", "{orders:ev ents}:processing:dlq", "other"):
        verdict = empty_redis.cli("ACL", "DRYRUN", USER, "XADD", key, "*", "f", "v")
        assert "permission" in verdict


async def test_a_worker_may_read_and_acknowledge(empty_redis: StandaloneServers) -> None:
    grant(empty_redis, acl_rules(KEYS, UserRole.WORKER))
    allowed: list[tuple[str, ...]] = [
        ("XREADGROUP", "GROUP", KEYS.group, "w", "STREAMS", KEYS.stream, KEYS.retry, ">", ">"),
        ("XACK", KEYS.stream, KEYS.group, "1-1"),
        ("PING",),
    ]
    for command in allowed:
        assert empty_redis.cli("ACL", "DRYRUN", USER, *command) == "OK"
    refused: list[tuple[str, ...]] = [
        ("XADD", KEYS.stream, "*", "f", "v"),
        ("XGROUP", "DESTROY", KEYS.stream, KEYS.group),
        ("DEL", KEYS.stream),
        ("FLUSHALL",),
    ]
    for command in refused:
        assert "permission" in empty_redis.cli("ACL", "DRYRUN", USER, *command)


async def test_every_rule_of_every_feature_is_known_to_the_server(
    empty_redis: StandaloneServers,
) -> None:
    # XNACK, XACKDEL and CLIENT SETINFO are the newest: asked for only where the server has them.
    features = set(Feature) - {Feature.RELEASE, Feature.DELETING, Feature.CLIENT_INFO}
    for role in UserRole:
        grant(empty_redis, acl_rules(KEYS, role, features))
