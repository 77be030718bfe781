"""One server."""

from local_cluster.redis_servers.server import RedisServer, data_lines
from local_cluster.redis_servers.servers import RedisServers


class StandaloneServers(RedisServers):
    """One server, in `server`."""

    topology = "standalone"

    def start(self) -> None:
        """Start it."""
        self.servers.append(RedisServer("standalone", self.ground, data_lines(self.ground)))
        self.server.start()

    @property
    def server(self) -> RedisServer:
        return self.servers[0]
