"""Start the servers of one topology, or none of them."""

import tempfile
from pathlib import Path
from typing import TypeVar

from local_cluster.redis_servers.binaries import find_binaries
from local_cluster.redis_servers.cluster import ClusterServers
from local_cluster.redis_servers.options import Ground, ServerOptions
from local_cluster.redis_servers.sentinel import SentinelServers
from local_cluster.redis_servers.servers import RedisServers
from local_cluster.redis_servers.standalone import StandaloneServers
from local_cluster.redis_servers.tls import make_tls_files

Started = TypeVar("Started", bound=RedisServers)

PLAIN = ServerOptions()
TOPOLOGIES: dict[str, type[RedisServers]] = {
    kind.topology: kind for kind in (StandaloneServers, SentinelServers, ClusterServers)
}


def start_servers(
    version: str,
    topology: str = "standalone",
    state: Path | None = None,
    *,
    options: ServerOptions = PLAIN,
    detached: bool = False,
) -> RedisServers:
    """Running servers of `version` (8.6, 7.0, valkey), fetched first when the machine has none.

    `state` holds their directories and logs; without it they have a temporary directory.
    They end with this process unless `detached`.
    Raises NoSuchServer or ServerFailed, and leaves nothing running.
    """
    if topology not in TOPOLOGIES:
        raise ValueError(f"no such topology: {topology!r}; there are {', '.join(TOPOLOGIES)}")
    return _start(TOPOLOGIES[topology], _ground(version, state, options, detached))


def start_standalone(
    version: str, state: Path | None = None, *, options: ServerOptions = PLAIN
) -> StandaloneServers:
    """As start_servers, with the type that has `server`."""
    return _start(StandaloneServers, _ground(version, state, options, detached=False))


def start_sentinel(
    version: str, state: Path | None = None, *, options: ServerOptions = PLAIN
) -> SentinelServers:
    """As start_servers, with the type that has `failover`."""
    return _start(SentinelServers, _ground(version, state, options, detached=False))


def start_cluster(
    version: str, state: Path | None = None, *, options: ServerOptions = PLAIN
) -> ClusterServers:
    """As start_servers, with the type that has `move_slot`."""
    return _start(ClusterServers, _ground(version, state, options, detached=False))


def _ground(version: str, state: Path | None, options: ServerOptions, detached: bool) -> Ground:
    binaries = find_binaries(version)
    folder = Path(tempfile.mkdtemp(prefix="pelops-redis-")) if state is None else state.absolute()
    return Ground(
        binaries=binaries,
        state=folder,
        options=options,
        tls_files=make_tls_files(folder / "tls") if options.tls else None,
        detached=detached,
        temporary=state is None,
    )


def _start(kind: type[Started], ground: Ground) -> Started:
    servers = kind(ground)
    try:
        servers.start()
    except BaseException:
        servers.stop()
        raise
    return servers
