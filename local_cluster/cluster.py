"""A whole cluster: control plane, nodes and Redis, started together and stopped together."""

from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.errors import LocalClusterError
from local_cluster.interrupts import uninterrupted
from local_cluster.kind import create_kind_cluster, delete_kind_cluster
from local_cluster.nodes import Node, start_nodes
from local_cluster.plane import ControlPlane
from local_cluster.progress import report, step
from local_cluster.records import Records, stop_nodes
from local_cluster.redis_servers import RedisServers, start_servers


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What to start."""

    nodes: int = 1
    light: bool = False  # pods only turn Ready
    redis: str = "8.6"
    topology: str = "standalone"
    kubeconfig: Path | None = None  # of a cluster that is there already; only Redis is started
    kind: bool = False


@dataclass(kw_only=True)
class Cluster:
    """A running cluster."""

    state: Path
    options: ClusterOptions
    detached: bool
    nodes: list[Node] = field(default_factory=list)
    _plane: ControlPlane | None = None
    _redis: RedisServers | None = None

    @classmethod
    def up(cls, state: Path, options: ClusterOptions, *, detached: bool = False) -> "Cluster":
        """A cluster that is ready for use, in an empty state directory.

        It ends with this process unless `detached`. A start that fails or is interrupted leaves
        nothing running; logs stay in the state directory.
        """
        cluster = cls(state=state.absolute(), options=options, detached=detached)
        cluster.state.mkdir(parents=True, exist_ok=True)
        try:
            with cluster.records.recording():
                cluster._start()
        except BaseException:
            with uninterrupted(), step("stopping all started processes"):
                cluster.down()
            raise
        return cluster

    @property
    def records(self) -> Records:
        """The processes, when detached."""
        return Records(self.state / "processes.json")

    @property
    def plane(self) -> ControlPlane:
        """The control plane. Raises LocalClusterError when it is kind's or the caller's own."""
        if self._plane is None:
            raise LocalClusterError("this cluster's control plane was not started here")
        return self._plane

    @property
    def redis(self) -> RedisServers:
        """The Redis servers."""
        if self._redis is None:
            raise LocalClusterError("Redis was not started")
        return self._redis

    @property
    def redis_url(self) -> str:
        """Where Redis is, without credentials."""
        return self.redis.url

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for any kind of control plane."""
        if self.options.kubeconfig is not None:
            return self.options.kubeconfig.absolute()
        return self.state / "kubeconfig" if self.options.kind else self.plane.kubeconfig

    @property
    def kind_name(self) -> str:
        """The kind cluster's name, with --kind."""
        return kind_name(self.state)

    def down(self) -> None:
        """Stop everything that `up` started; the state directory stays. Nothing when done before.

        A cluster named by its kubeconfig is left as it is.
        """
        stop_nodes([node.process for node in self.nodes])
        if self._plane is not None:
            self._plane.stop()
        if self._redis is not None:
            self._redis.stop()
        if self.detached:
            self.records.stop_all()  # also what an interrupt took from the hands of `up`
        if self.options.kind and self.kubeconfig.exists():
            delete_kind_cluster(self.kind_name, self.kubeconfig)

    def _start(self) -> None:
        options = self.options
        if options.kubeconfig is not None:
            self._use(options.kubeconfig)
        elif options.kind:
            create_kind_cluster(self.kind_name, self.kubeconfig, self.state / "kind.log")
        else:
            self._plane = ControlPlane.start(self.state / "control-plane", detached=self.detached)
        with step(f"starting Redis {options.redis}, {options.topology}"):
            self._redis = start_servers(
                options.redis, options.topology, self.state / "redis", detached=self.detached
            )
        if self._plane is not None:
            self._start_nodes(self._plane)

    def _use(self, kubeconfig: Path) -> None:
        if not kubeconfig.is_file():
            raise LocalClusterError(f"there is no kubeconfig {kubeconfig}")
        report(f"using the cluster of {kubeconfig}; only Redis is started")

    def _start_nodes(self, plane: ControlPlane) -> None:
        count, light = self.options.nodes, self.options.light
        with step(f"starting {count} {'light ' * light}node{'s' * (count != 1)}"):
            self.nodes += start_nodes(plane, count, self.state / "nodes", light=light)


def kind_name(state: Path) -> str:
    """The name of the kind cluster that belongs to a state directory."""
    return f"pelops-{state.name.lower()}"
