"""The options of servers, and what all servers of a topology share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.redis_servers.tls import TlsFiles
from local_cluster.redis_servers.versions import RedisBinaries


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What differs from a plain server in memory."""

    tls: bool = False  # TLS only: no plain port is left open
    tls_client_auth: bool = False  # clients must show a certificate
    password: str | None = None  # of the default user
    append_only: str | None = None  # appendfsync: "always", "everysec" or "no"; None keeps no file
    replicas: int = 0  # for each master of a cluster
    config: Mapping[str, str] = field(default_factory=dict)  # lines of redis.conf; they win


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all servers of one topology share."""

    binaries: RedisBinaries
    state: Path
    options: ServerOptions
    tls_files: TlsFiles | None
    detached: bool  # the servers live on when this process ends
    temporary: bool  # `state` is removed when the servers stop

    @property
    def scheme(self) -> str:
        return "rediss" if self.tls_files else "redis"

    def listening_lines(self, port: int) -> list[str]:
        """The configuration lines, for servers and Sentinels alike, that say where to listen."""
        tls = self.tls_files
        if tls is None:
            return ["bind 127.0.0.1", f"port {port}"]
        return [
            "bind 127.0.0.1",
            "port 0",
            f"tls-port {port}",
            f'tls-ca-cert-file "{tls.ca}"',
            f'tls-cert-file "{tls.server_cert}"',
            f'tls-key-file "{tls.server_key}"',
            f"tls-auth-clients {'yes' if self.options.tls_client_auth else 'no'}",
            "tls-replication yes",
            "tls-cluster yes",
        ]

    def cli_arguments(self) -> list[str]:
        tls = self.tls_files
        if tls is None:
            return []
        return ["--tls", "--cacert", str(tls.ca), "--cert", str(tls.cert), "--key", str(tls.key)]
