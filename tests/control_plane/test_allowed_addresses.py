"""With the settings of an installation on a cluster no address of its own is connected to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.plane import ControlPlane
from local_cluster.redis_servers import StandaloneServers
from tests.cluster_fixtures import FAST
from tests.e2e.declaring import NAME, a_spec
from tests.operators import Operators
from tests.tenant import Tenant

SPELLINGS = (
    *("127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "127.1", "0x7f000001", "0", "0.0.0.0"),
    *("169.254.169.254", "2852039166", "100.100.100.200", "[::1]", "[::]", "[::ffff:127.0.0.1]"),
    *("[::ffff:7f00:1]", "[fe80::1]", "[fd00:ec2::254]", "[64:ff9b::7f00:1]", "[::127.0.0.1]"),
)


@pytest.fixture
def strict(plane: ControlPlane, tmp_path: Path, namespace: str) -> Iterator[Tenant]:
    """A tenant of an operator with the settings of an installation on a cluster."""
    settings = FAST | {"PELOPS_ALLOWED_NETWORKS": ""}
    with Operators(plane, tmp_path, environment=settings) as operators:
        operators.start()
        yield Tenant(plane, namespace)


@pytest.mark.full
def test_an_address_of_this_machine_is_refused_in_every_spelling(
    strict: Tenant, redis_86: StandaloneServers, key_prefix: str
) -> None:
    port = redis_86.master().port
    for number, host in enumerate(SPELLINGS):
        spec = a_spec(f"redis://{host}:{port}", f"{key_prefix}-{number}")
        strict.create("StreamConsumerGroup", f"{NAME}-{number}", spec)
    for number, host in enumerate(SPELLINGS):
        refused = strict.await_refusal(f"{NAME}-{number}")
        assert refused["reason"] == "AddressNotAllowed", (host, refused)
    assert redis_86.cli("KEYS", f"*{key_prefix}*") == ""
