"""A master with two replicas, and three Sentinels that replace it when it fails."""

from local_cluster.processes import wait_until
from local_cluster.redis_servers.options import Ground
from local_cluster.redis_servers.server import CommandFailed, RedisServer, data_lines, quoted
from local_cluster.redis_servers.servers import RedisServers

MASTER_NAME = "mymaster"
REPLICAS = 2
SENTINELS = 3
QUORUM = 2
SETTLE_TIMEOUT_S = 60.0
# A Sentinel that was kept from running for 2 s does nothing for 30 s (TILT), and then starts over.
FAILOVER_TIMEOUT_S = 120.0

# Sentinel's own periods (2 s, 10 s) make a test wait for what it is not about.
PERIODS = ("INFO-PERIOD", "500", "PUBLISH-PERIOD", "200", "PING-PERIOD", "200")


class SentinelServers(RedisServers):
    """Three servers and three Sentinels; any server may become the master."""

    topology = "sentinel"

    def start(self) -> None:
        """Return when every Sentinel knows both replicas and the other Sentinels."""
        self.sentinel_master = MASTER_NAME
        lines = data_lines(self.ground)
        first = RedisServer("redis-1", self.ground, lines)
        self.servers.append(first)
        first.start()
        follow = [*lines, f"replicaof 127.0.0.1 {first.port}"]
        for number in range(2, 2 + REPLICAS):
            self.servers.append(RedisServer(f"redis-{number}", self.ground, follow))
            self.servers[-1].start()
        # Before the Sentinels: a replica that connects later is noticed only at the next INFO.
        wait_until(
            lambda: self._is_replicated(first.port),
            timeout_s=SETTLE_TIMEOUT_S,
            what="the replicas are in sync",
        )
        for number in range(1, 1 + SENTINELS):
            self._add_sentinel(f"sentinel-{number}", first.port)
        self.await_readiness()

    def await_readiness(self) -> None:
        """Return when all Sentinels are done with a failover, and all that runs is in sync."""
        wait_until(self._is_settled, timeout_s=SETTLE_TIMEOUT_S, what="the Sentinels agree")

    def master_address(self) -> tuple[str, int]:
        """Where the Sentinels say that the master is. Raises CommandFailed when none answers."""
        failure = CommandFailed("no Sentinel runs")
        for sentinel in filter(RedisServer.is_serving, self.sentinels):
            try:
                answer = sentinel.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)
            except CommandFailed as failed:
                failure = failed
                continue
            host, port = answer.split()
            return host, int(port)
        raise failure

    def masters(self) -> list[RedisServer]:
        """The master alone, by the word of the Sentinels."""
        return [self.server_at(self.master_address()[1])]

    def failover(self) -> tuple[str, int]:
        """Have the Sentinels promote a replica; the new master's address, once it is settled."""
        before = self.master_address()

        def is_over() -> bool:
            # A Sentinel gives up a failover that takes too long, as on a busy machine. It does not
            # begin another one for a master that is up: it is asked again.
            if self._is_idle_at(before):
                self._fails_over()
            return self._is_replaced(before)

        wait_until(is_over, timeout_s=FAILOVER_TIMEOUT_S, what="another server is master")
        return self.master_address()

    def await_failover(self, before: tuple[str, int]) -> tuple[str, int]:
        """The new master's address, once it is not `before` and everything has settled."""
        wait_until(
            lambda: self._is_replaced(before),
            timeout_s=FAILOVER_TIMEOUT_S,
            what="another server is master",
        )
        return self.master_address()

    def _add_sentinel(self, name: str, master_port: int) -> None:
        sentinel = RedisServer(name, self.ground, _lines(self.ground, master_port), sentinel=True)
        self.sentinels.append(sentinel)
        sentinel.start()
        sentinel.cli("SENTINEL", "DEBUG", *PERIODS)

    def _is_replaced(self, before: tuple[str, int]) -> bool:
        # All of it, not only the new address: when the new master dies before the Sentinel
        # that leads the failover has ended it, Sentinels may disagree for minutes.
        return self.master_address() != before and self._is_settled()

    def _is_idle_at(self, master: tuple[str, int]) -> bool:
        """Whether the Sentinel that is asked has this master still, and no failover under way."""
        seen = _seen_by(self.sentinels[0])
        return (seen["ip"], int(seen["port"])) == master and seen["flags"] == "master"

    def _fails_over(self) -> None:
        try:
            self.sentinels[0].cli("SENTINEL", "FAILOVER", MASTER_NAME)
        except CommandFailed as refused:
            # One is under way, or the last one's promotion has not been noticed by all yet.
            if "INPROG" not in str(refused) and "NOGOODSLAVE" not in str(refused):
                raise

    def _is_settled(self) -> bool:
        seen = [_seen_by(sentinel) for sentinel in self.sentinels if sentinel.is_serving()]
        # One flag alone: no failover in progress, and not down.
        wanted = {"flags": "master", "num-slaves": str(REPLICAS)}
        wanted["num-other-sentinels"] = str(SENTINELS - 1)
        ports = {fields["port"] for fields in seen}
        agreed = len(ports) == 1 and all(wanted.items() <= fields.items() for fields in seen)
        return agreed and self._is_replicated(int(ports.pop()))

    def _is_replicated(self, master_port: int) -> bool:
        """Whether the server on this port is master and all others that run follow it, in sync."""
        for server in filter(RedisServer.is_serving, self.servers):
            try:
                replication = server.info("replication")
            except CommandFailed:
                return False  # a Sentinel that makes it a replica ends all its connections
            wanted = {"role": "master"}
            if server.port != master_port:
                wanted = {"master_port": str(master_port), "master_link_status": "up"}
            if not wanted.items() <= replication.items():
                return False
        return True


def _lines(ground: Ground, master_port: int) -> list[str]:
    lines = [
        f"sentinel monitor {MASTER_NAME} 127.0.0.1 {master_port} {QUORUM}",
        f"sentinel down-after-milliseconds {MASTER_NAME} 1000",
        f"sentinel failover-timeout {MASTER_NAME} 3000",
        f"sentinel parallel-syncs {MASTER_NAME} {REPLICAS}",
    ]
    if ground.options.password is not None:
        lines.append(f"sentinel auth-pass {MASTER_NAME} {quoted(ground.options.password)}")
    return lines


def _seen_by(sentinel: RedisServer) -> dict[str, str]:
    """What a Sentinel knows of the master: names and values come in turn."""
    words = sentinel.cli("SENTINEL", "MASTER", MASTER_NAME).splitlines()
    return dict(zip(words[::2], words[1::2], strict=False))
