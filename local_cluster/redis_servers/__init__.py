"""Real Redis and Valkey servers for the demo, the tests and the benchmarks."""

from local_cluster.redis_servers.binaries import cache_dir, find_binaries, is_installed
from local_cluster.redis_servers.cluster import ClusterServers
from local_cluster.redis_servers.options import ServerOptions
from local_cluster.redis_servers.sentinel import SentinelServers
from local_cluster.redis_servers.server import CommandFailed, RedisServer, ServerFailed
from local_cluster.redis_servers.servers import RedisServers
from local_cluster.redis_servers.standalone import StandaloneServers
from local_cluster.redis_servers.starting import (
    TOPOLOGIES,
    start_cluster,
    start_sentinel,
    start_servers,
    start_standalone,
)
from local_cluster.redis_servers.tls import TlsFiles
from local_cluster.redis_servers.versions import VERSIONS, NoSuchServer, RedisBinaries

__all__ = [
    "TOPOLOGIES",
    "VERSIONS",
    "ClusterServers",
    "CommandFailed",
    "NoSuchServer",
    "RedisBinaries",
    "RedisServer",
    "RedisServers",
    "SentinelServers",
    "ServerFailed",
    "ServerOptions",
    "StandaloneServers",
    "TlsFiles",
    "cache_dir",
    "find_binaries",
    "is_installed",
    "start_cluster",
    "start_sentinel",
    "start_servers",
    "start_standalone",
]
