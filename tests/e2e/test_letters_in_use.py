"""Dead-letter streams that belong to others, or are shared: nothing of them is touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis
import yaml

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from tests.e2e.declaring import WAIT_S, a_letter, a_spec, await_absence
from tests.e2e.test_conflicts import await_next_second
from tests.operators import Resources

OLD_MS = 1_700_000_000_000


class Author(Resources):
    """A user who may handle StreamConsumerGroups of the namespace, and nothing else."""

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources.plane, resources.namespace)
        api = "rbac.authorization.k8s.io"
        verbs = ["get", "list", "create", "delete", "patch", "update"]
        rule = {"apiGroups": ["pelops.dev"], "resources": ["streamconsumergroups"], "verbs": verbs}
        resources.apply_raw(
            {
                "apiVersion": f"{api}/v1",
                "kind": "Role",
                "metadata": {"name": "author"},
                "rules": [rule],
            },
            {
                "apiVersion": f"{api}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "author"},
                "roleRef": {"apiGroup": api, "kind": "Role", "name": "author"},
                "subjects": [{"apiGroup": api, "kind": "User", "name": "author"}],
            },
        )

    def apply_raw(self, *manifests: Mapping[str, Any]) -> None:
        text = yaml.safe_dump_all([dict(one) for one in manifests])
        where = ("--as=author", "-n", self.namespace)
        self.plane.kubectl("apply", *where, "-f", "-", stdin=text)


def client(servers: RedisServers) -> Any:
    return redis.Redis.from_url(servers.url, decode_responses=True)


def with_letters(servers: RedisServers, stream: str, letters: str, **more: Any) -> dict[str, Any]:
    kept = {"stream": letters, "retentionSeconds": 60}
    return a_spec(servers.url, stream, deadLetter=kept, template=None, group="mine", **more)


def test_an_author_of_resources_cannot_empty_a_live_stream(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    """C1, invariant 14."""
    store, live, author = client(redis_86), f"{stream}:pay", Author(resources)
    ids = [store.xadd(live, {"n": str(n)}, f"{OLD_MS}-{n + 1}") for n in range(300)]
    store.xgroup_create(live, "payers", "0")
    store.xreadgroup("payers", "p", {live: ">"}, 50)
    author.apply("mine", with_letters(redis_86, f"{{{live}}}:mine", live))
    refused = author.await_condition("mine", reason="DeadLetterStreamInUse")
    assert live in refused["message"]
    assert "payers" in refused["message"]
    assert "spec.deadLetter.stream" in refused["message"]
    assert not store.exists(f"{{{live}}}:mine")

    # The same by a change of a resource that works.
    author.apply("mine", with_letters(redis_86, f"{{{live}}}:mine", f"{{{live}}}:letters"))
    author.await_condition("mine", reason="Ready")
    author.apply("mine", with_letters(redis_86, f"{{{live}}}:mine", live))
    author.await_condition("mine", reason="DeadLetterStreamInUse")
    assert [one for one, _ in store.xrange(live)] == ids
    assert store.xpending(live, "payers")["pending"] == 50


def test_the_stream_of_another_resource_is_no_dead_letter_stream(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    live = f"{stream}:pay"
    resources.apply("mine", with_letters(redis_86, f"{{{live}}}:mine", live))
    resources.await_condition("mine", reason="Ready")  # the stream has no owner so far
    await_next_second(resources, "mine")
    resources.apply("payers", a_spec(redis_86.url, live, template=None))
    resources.await_condition("payers", reason="Ready")
    in_use = "DeadLetterStreamInUse"
    alarm = resources.await_condition("mine", in_use, reason=in_use)
    assert live in alarm["message"]
    resources.delete("mine")
    await_absence(resources, "scg", "mine")
    await_next_second(resources, "payers")
    client(redis_86).delete(f"{{{live}}}:ownership")
    resources.apply("mine", with_letters(redis_86, f"{{{live}}}:again", live))
    refused = resources.await_condition("mine", reason="DeadLetterStreamInUse")
    assert f"{resources.namespace}/payers" in refused["message"]


def test_of_two_resources_with_one_dead_letter_stream_the_older_acts(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    shared = f"{stream}:letters"
    resources.apply("zz-older", with_letters(redis_86, f"{{{shared}}}:older", shared))
    resources.await_condition("zz-older", reason="Ready")
    await_next_second(resources, "zz-older")
    resources.apply("aa-younger", with_letters(redis_86, f"{{{shared}}}:younger", shared))
    conflict = resources.await_condition("aa-younger", reason="Conflict")
    assert f"{resources.namespace}/zz-older" in conflict["message"]
    assert resources.condition("zz-older")["reason"] == "Ready"
    resources.delete("zz-older")
    resources.await_condition("aa-younger", reason="Ready")


def test_a_recreated_resource_adopts_its_dead_letters_again(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    store, letters = client(redis_86), f"{stream}:letters"
    own = f"{{{letters}}}:mine"
    keys = derive_keys(own, "mine", dead_letter=letters)
    for policy in ("Retain", "Delete"):
        spec = with_letters(redis_86, own, letters, deletionPolicy=policy)
        resources.apply("mine", spec)
        resources.await_condition("mine", reason="Ready")
        kept = store.xadd(letters, a_letter(own, "mine"))
        foreign = store.xadd(letters, {"n": "no letter"})
        resources.delete("mine")
        await_absence(resources, "scg", "mine")
        resources.apply("mine", spec)
        resources.await_condition("mine", reason="Ready")
        assert {kept, foreign} <= {one for one, _ in store.xrange(letters)}
        resources.delete("mine")
        await_absence(resources, "scg", "mine")
    assert store.hget(keys.dead_letter_owner, "group") == "mine"


def test_deleting_a_resource_keeps_foreign_streams_at_derived_keys(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    store, keys = client(redis_86), derive_keys(stream, "mine")
    ids = [store.xadd(keys.retry, {"n": "1"}, f"{OLD_MS}-{n + 1}") for n in range(300)]
    spec = a_spec(
        redis_86.url,
        stream,
        group="mine",
        template=None,
        deletionPolicy="Delete",
        recovery={"strategy": "RetryStream"},
    )
    resources.apply("mine", spec)
    refused = resources.await_condition("mine", reason="StreamInUse")
    assert keys.retry in refused["message"]
    resources.apply("mine", {**spec, "recovery": {"strategy": "Requeue"}})
    resources.await_condition("mine", reason="Ready")
    resources.delete("mine")
    await_absence(resources, "scg", "mine")
    wait_until(lambda: not store.exists(keys.state), timeout_s=WAIT_S, what="the group to go")
    assert [one for one, _ in store.xrange(keys.retry)] == ids
