"""The servers of one topology, under one name for those who use them."""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from local_cluster.processes import Process
from local_cluster.redis_servers.options import Ground
from local_cluster.redis_servers.server import RedisServer
from local_cluster.redis_servers.tls import TlsFiles


class RedisServers(ABC):
    """Running servers; as a context manager they are stopped at its end."""

    topology: ClassVar[str]

    def __init__(self, ground: Ground) -> None:
        self.servers: list[RedisServer] = []  # those that hold data; the first is a master at first
        self.sentinels: list[RedisServer] = []
        self.sentinel_master: str | None = None
        self.ground = ground

    @abstractmethod
    def start(self) -> None:
        """Build the topology; return when it is ready for use."""

    def await_readiness(self) -> None:
        """Return when all servers agree on who is what."""
        return  # a single server agrees with itself

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """What a user writes as `spec.redis.url`: never with credentials."""
        return f"{self.ground.scheme}://127.0.0.1:{self.master().port}"

    @property
    def version(self) -> str:
        return self.ground.binaries.version

    @property
    def flavour(self) -> str:
        return self.ground.binaries.flavour

    @property
    def password(self) -> str | None:
        return self.ground.options.password

    @property
    def tls_files(self) -> TlsFiles | None:
        return self.ground.tls_files

    @property
    def sentinel_nodes(self) -> tuple[tuple[str, int], ...]:
        return tuple(("127.0.0.1", sentinel.port) for sentinel in self.sentinels)

    @property
    def everything(self) -> list[RedisServer]:
        return [*self.servers, *self.sentinels]

    @property
    def processes(self) -> list[Process]:
        """Those that were started, ended ones included."""
        return [server.process for server in self.everything if server.process is not None]

    def master(self) -> RedisServer:
        """A running master: the only one, or any of a cluster."""
        return self.masters()[0]

    def masters(self) -> list[RedisServer]:
        """Those which take writes; without replication that is all."""
        return self.servers

    def server_at(self, port: int) -> RedisServer:
        """The server, or Sentinel, on this port. Raises KeyError."""
        by_port = {server.port: server for server in self.everything}
        return by_port[port]

    def cli(self, *args: str, port: int | None = None) -> str:
        """The answer of redis-cli from the master, or from the server on `port`.

        Raises CommandFailed when the server cannot be reached or answers with an error.
        """
        server = self.master() if port is None else self.server_at(port)
        return server.cli(*args)

    def acl_setuser(self, name: str, *rules: str) -> None:
        """ACL SETUSER on every server that holds data; forgotten when a server restarts."""
        for server in self.servers:
            server.cli("ACL", "SETUSER", name, *rules)

    def flush(self) -> None:
        """Start what was ended or paused, and remove all keys, functions and added users."""
        for server in self.everything:
            server.resume()
            server.start()
        self.await_readiness()
        for server in self.servers:
            _delete_users(server)
        for master in self.masters():
            master.cli("FLUSHALL", "SYNC")
            master.cli("FUNCTION", "FLUSH", "SYNC")

    def restart(self) -> None:
        """End every server in good order, and start it again on its port."""
        for server in self.everything:
            server.stop()
        for server in self.everything:
            server.start()
        self.await_readiness()

    def stop(self) -> None:
        """End every server; nothing the second time. Logs stay when a state directory was named."""
        for server in [*self.sentinels, *reversed(self.servers)]:
            server.kill()  # in good order a master would wait for replicas that have ended
        if self.ground.temporary:
            shutil.rmtree(self.ground.state, ignore_errors=True)

    def secret(self) -> dict[str, str]:
        """The entries of the Secret that `spec.redis.secretRef` names."""
        entries = {"url": self.url}
        if self.password is not None:
            entries["password"] = self.password
        files = self.tls_files
        if files is not None:
            pems = {"ca.crt": files.ca, "tls.crt": files.cert, "tls.key": files.key}
            entries |= {name: Path(file).read_text() for name, file in pems.items()}
        return entries

    def describe(self) -> dict[str, object]:
        """All that is needed to use them from elsewhere, ready for JSON; no password."""
        return {
            "topology": self.topology,
            "flavour": self.flavour,
            "version": self.version,
            "url": self.url,
            "sentinel_master": self.sentinel_master,
            "sentinel_nodes": [list(node) for node in self.sentinel_nodes],
            "tls_ca": str(self.tls_files.ca) if self.tls_files else None,
            "servers": [
                {
                    "name": server.name,
                    "port": server.port,
                    "pid": server.process.pid if server.process else None,
                    "log": str(server.log),
                }
                for server in self.everything
            ],
        }


def _delete_users(server: RedisServer) -> None:
    added = [name for name in server.cli("ACL", "USERS").splitlines() if name != "default"]
    if added:
        server.cli("ACL", "DELUSER", *added)
