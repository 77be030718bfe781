"""A deletion in one replica, against a real API server and a real Redis."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

from local_cluster.plane import ControlPlane
from local_cluster.redis_servers import RedisServers
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_deletion import FINALIZER, GroupDeletion
from pelops.controller.group.group_observer import GroupMemory, GroupObserver, OwnedGroup
from pelops.controller.runtime.connections import Connections, Secrets
from pelops.controller.runtime.kind import Finalizer
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.endpoint import parse_redis_url
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.kube.client import STREAM_CONSUMER_GROUP, KubeApi
from pelops.policy.status.reasons import Reason
from pelops.redis_core.pool import ServerPool
from pelops.redis_streams.group.lifecycle import provision_group
from tests.operators import Resources, sleeping_template


def _delete_with_finalizer(resources: Resources, stream: str) -> StreamConsumerGroup:
    """A resource that is being deleted, whose Secret no longer exists."""
    spec = {
        "redis": {"secretRef": {"name": "gone"}},
        "stream": stream,
        "template": sleeping_template(),
        "deletionPolicy": "Delete",
    }
    resources.apply_raw(
        {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamConsumerGroup",
            "metadata": {"name": "orders", "finalizers": [FINALIZER]},
            "spec": spec,
        }
    )
    resources.delete("orders")
    found = resources.get("scg", "orders")
    assert found is not None
    return StreamConsumerGroup.parse(found)


async def test_a_group_is_destroyed_although_its_secret_was_deleted_first(
    plane: ControlPlane, namespace: str, redis_86: RedisServers, key_prefix: str
) -> None:
    resource = _delete_with_finalizer(Resources(plane, namespace), key_prefix)
    api, pool, cache = await KubeApi.connect(str(plane.kubeconfig)), ServerPool(), WorkloadCache()
    clock = asyncio.get_running_loop().time
    try:
        targets = Targets(api, cache, clock)
        connections = Connections(pool, Secrets(api, clock))
        observer = GroupObserver(cache, connections, targets, cluster="here")
        server = await pool.server(parse_redis_url(redis_86.url))
        keys, owner = derive_keys(key_prefix, "orders"), observer.owner_of(resource)
        await provision_group(server, keys, start=EntryId.MIN, owner=owner)

        deletion = GroupDeletion(observer)
        memory = GroupMemory(owned=OwnedGroup(server, keys, owner, resource.spec.redis))
        happening = await deletion.clean_up(resource, memory, datetime.now(UTC))
        assert happening is not None and happening.reason == Reason.GROUP_REMOVED
        finalizer = Finalizer(api, cache.objects, STREAM_CONSUMER_GROUP, FINALIZER)
        assert await finalizer.try_remove(resource.metadata) is None
    finally:
        await pool.close()
        await api.close()
    assert redis_86.cli("XINFO", "GROUPS", key_prefix) == ""
    left = plane.kubectl("get", "scg", "-n", namespace, "-o", "json")
    assert json.loads(left.stdout)["items"] == []
