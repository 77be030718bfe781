"""Three masters that share the slots, with replicas when asked for."""

from local_cluster.processes import wait_until
from local_cluster.redis_servers.server import CommandFailed, RedisServer, data_lines
from local_cluster.redis_servers.servers import RedisServers

MASTERS = 3
SLOTS = 16384
SETTLE_TIMEOUT_S = 60.0
MIGRATE_TIMEOUT_MS = 30_000
KEYS_PER_MIGRATE = 100

LINES = ["cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 3000"]


class ClusterServers(RedisServers):
    """A cluster; the slots move as a test says, step by step.

    begin_migration, migrate_keys and finish_migration are the steps of move_slot.
    """

    topology = "cluster"

    def start(self) -> None:
        """Return when every node serves all slots and every replica is in sync."""
        replicas = self.ground.options.replicas
        lines = [*LINES, *data_lines(self.ground)]  # the user's lines come last, and win
        for number in range(1, 1 + MASTERS * (1 + replicas)):
            self.servers.append(RedisServer(f"node-{number}", self.ground, lines))
            self.servers[-1].start()
        nodes = [f"127.0.0.1:{server.port}" for server in self.servers]
        options = ["--cluster-replicas", str(replicas), "--cluster-yes"]
        self.servers[0].run_cli("--cluster", "create", *nodes, *options)
        self.await_readiness()

    def await_readiness(self) -> None:
        """Return when every running node serves all slots, and every replica is in sync."""
        wait_until(self._is_whole, timeout_s=SETTLE_TIMEOUT_S, what="the cluster is whole")

    def cli(self, *args: str, port: int | None = None) -> str:
        """The answer of redis-cli; without a port it follows redirections to the key's node."""
        if port is not None:
            return self.server_at(port).cli(*args)
        some = self._running()
        return some.run_cli("-c", "-h", "127.0.0.1", "-p", str(some.port), "-e", *args)

    def masters(self) -> list[RedisServer]:
        """The running servers that are masters by their own word."""
        running = [server for server in self.servers if server.is_serving()]
        return [server for server in running if server.info("replication")["role"] == "master"]

    def slot_of(self, key: str) -> int:
        return int(self._running().cli("CLUSTER", "KEYSLOT", key))

    def owner_of(self, slot: int) -> RedisServer:
        """The master that serves this slot. Raises CommandFailed when none does."""
        for node in self._running().cli("CLUSTER", "NODES").splitlines():
            _, address, flags, _, _, _, _, _, *ranges = node.split()
            if "fail" not in flags.split(",") and any(_covers(part, slot) for part in ranges):
                return self.server_at(int(address.split("@")[0].rpartition(":")[2]))
        raise CommandFailed(f"no master serves slot {slot}")

    def begin_migration(self, slot: int, to: RedisServer) -> None:
        """From now on `to` takes what is asked for by ASKING, and the owner redirects to it."""
        owner = self.owner_of(slot)
        # This order: between the two, no client is sent to a node that would refuse it.
        to.cli("CLUSTER", "SETSLOT", str(slot), "IMPORTING", node_id(owner))
        owner.cli("CLUSTER", "SETSLOT", str(slot), "MIGRATING", node_id(to))

    def migrate_keys(self, slot: int, to: RedisServer, *keys: str) -> None:
        """Move these keys of a slot under migration, or all that are left when none is named."""
        owner = self.owner_of(slot)
        if keys:
            self._migrate(owner, to, list(keys))
            return
        while left := self._keys_in(owner, slot):
            self._migrate(owner, to, left)

    def finish_migration(self, slot: int, to: RedisServer) -> None:
        """Move the keys that are left and give the slot to `to`; all nodes know when it returns."""
        self.migrate_keys(slot, to)
        owner, new = self.owner_of(slot), node_id(to)
        for server in (to, owner, *self.masters()):
            server.cli("CLUSTER", "SETSLOT", str(slot), "NODE", new)
        self.await_readiness()

    def move_slot(self, slot: int, to: RedisServer) -> None:
        """Give a slot with its keys to another master."""
        self.begin_migration(slot, to)
        self.finish_migration(slot, to)

    def _running(self) -> RedisServer:
        return next(server for server in self.servers if server.is_serving())

    def _keys_in(self, owner: RedisServer, slot: int) -> list[str]:
        answer = owner.cli("CLUSTER", "GETKEYSINSLOT", str(slot), str(KEYS_PER_MIGRATE))
        return [key for key in answer.split("\n") if key]

    def _migrate(self, owner: RedisServer, to: RedisServer, keys: list[str]) -> None:
        password = ["AUTH", self.password] if self.password is not None else []
        where = ["127.0.0.1", str(to.port), "", "0", str(MIGRATE_TIMEOUT_MS)]
        owner.cli("MIGRATE", *where, *password, "KEYS", *keys)

    def _is_whole(self) -> bool:
        running = [server for server in self.servers if server.is_serving()]
        return all(self._sees_all(server) and _is_in_sync(server) for server in running)

    def _sees_all(self, server: RedisServer) -> bool:
        pairs = (line.partition(":") for line in server.cli("CLUSTER", "INFO").splitlines())
        seen = {name: value for name, _, value in pairs}
        wanted = {
            "cluster_state": "ok",
            "cluster_slots_ok": str(SLOTS),
            "cluster_known_nodes": str(len(self.servers)),
        }
        return wanted.items() <= seen.items()


def node_id(server: RedisServer) -> str:
    """The name of a cluster's node."""
    return server.cli("CLUSTER", "MYID")


def _covers(part: str, slot: int) -> bool:
    """Whether one of the ranges at the end of a CLUSTER NODES line holds the slot."""
    if part.startswith("["):  # a slot on its way, which is listed among the ranges as well
        return False
    first, _, last = part.partition("-")
    return int(first) <= slot <= int(last or first)


def _is_in_sync(server: RedisServer) -> bool:
    replication = server.info("replication")
    return replication["role"] == "master" or replication.get("master_link_status") == "up"
