"""What `up`, `status` and `down` do to a cluster that outlives them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from local_cluster.binaries import find_binaries
from local_cluster.cluster import Cluster, ClusterOptions, kind_name
from local_cluster.errors import LocalClusterError
from local_cluster.interrupts import uninterrupted
from local_cluster.kind import delete_kind_cluster
from local_cluster.progress import report, step
from local_cluster.records import Records
from local_cluster.redis_servers import find_binaries as find_redis
from local_cluster.state_directory import StateDirectory


def bring_up(state: Path, options: ClusterOptions, asked: Mapping[str, object]) -> None:
    """Start a cluster, or find it up; print how to reach it on standard output.

    `asked` are the options that were named: a cluster that is up must have them.
    Raises LocalClusterError when it is half up, or up with other options.
    """
    directory = StateDirectory(state)
    with directory.claimed():
        summary = directory.read_summary()
        if summary is not None and _is_whole(directory):
            _insist_on_options(summary, asked)
            report(f"the cluster in {directory.path} is already running")
            _print_access(summary)
            return
        _clear(directory)
        try:
            cluster = Cluster.up(directory.path, options, detached=True)
            summary = _summarize(cluster)
            directory.write_summary(summary)
        except KeyboardInterrupt:
            with uninterrupted():
                _stop(directory)  # what an interrupt after the start found running
                directory.remove()
            raise
        _print_access(summary)


def build_all(redis: Sequence[str], *, redis_only: bool = False) -> None:
    """Build or fetch what `up` needs, for these Redis versions, and start nothing."""
    for version in redis:
        find_redis(version)
    if redis_only:
        return
    report(f"the control plane is installed, {find_binaries().origin}")


def print_status(state: Path) -> bool:
    """Say of every part whether it runs; False unless a cluster is up with all of them."""
    directory = StateDirectory(state)
    summary = directory.read_summary()
    if summary is None:
        print(f"no cluster is running in {directory.path}")
    else:
        print(f"control plane  {summary['control_plane']}")
    processes = _records(directory).read()
    for process in processes:
        running = f"running  pid {process.pid}" if process.is_alive() else "dead"
        print(f"{process.name:<25} {running}  {process.log}")
    if summary is not None:
        _print_access(summary)
    return summary is not None and all(process.is_alive() for process in processes)


def bring_down(state: Path) -> None:
    """Stop every process of the cluster, and remove its state directory; nothing without one.

    Raises LocalClusterError when the directory has no marker of a local cluster.
    """
    directory = StateDirectory(state)
    if not directory.path.exists():
        report(f"no cluster is running in {directory.path}")
        return
    if not directory.is_ours():
        raise LocalClusterError(f"{directory.path} is not a state directory of a local cluster")
    with directory.claimed():
        with step(f"stopping the cluster in {directory.path}"):
            _stop(directory)
        directory.remove()


def _is_whole(directory: StateDirectory) -> bool:
    """Whether it is up; raises LocalClusterError when parts of it are dead, and others not."""
    processes = _records(directory).read()
    dead = [process.name for process in processes if not process.is_alive()]
    if not dead:
        return True
    if len(dead) < len(processes):
        raise LocalClusterError(
            f"the cluster in {directory.path} is half up: {', '.join(dead)} ended;"
            " take it down first (its logs go with it)"
        )
    report(f"all of the cluster in {directory.path} has ended, by a reboot perhaps; starting anew")
    return False


def _insist_on_options(summary: Mapping[str, object], asked: Mapping[str, object]) -> None:
    has = summary["options"]
    assert isinstance(has, dict)
    other = [f"{key}={has[key]}, not {value}" for key, value in asked.items() if has[key] != value]
    if other:
        raise LocalClusterError(
            f"a cluster is up with other options ({'; '.join(other)});"
            " take it down first, or name another --state"
        )


def _clear(directory: StateDirectory) -> None:
    left = [one for one in _records(directory).read() if one.is_alive()]
    if left:
        with step("stopping processes of an unfinished start"):
            _stop(directory)
    directory.empty()


def _stop(directory: StateDirectory) -> None:
    _records(directory).stop_all()
    kubeconfig = directory.path / "kubeconfig"
    if kubeconfig.exists():
        delete_kind_cluster(kind_name(directory.path), kubeconfig)


def _records(directory: StateDirectory) -> Records:
    return Records(directory.path / "processes.json")


def _summarize(cluster: Cluster) -> dict[str, object]:
    options = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(cluster.options).items()
    }
    return {
        "kubeconfig": str(cluster.kubeconfig),
        "redis_url": cluster.redis_url,
        "redis": cluster.redis.describe(),
        "control_plane": _describe_control_plane(cluster),
        "options": options,
    }


def _describe_control_plane(cluster: Cluster) -> str:
    if cluster.options.kubeconfig is not None:
        return f"somebody else's, of {cluster.kubeconfig}"
    if cluster.options.kind:
        return f"kind cluster {kind_name(cluster.state)}"
    return cluster.plane.origin


def _print_access(summary: Mapping[str, object]) -> None:
    redis = summary["redis"]
    assert isinstance(redis, dict)
    if redis["sentinel_nodes"]:
        nodes = ",".join(f"{host}:{port}" for host, port in redis["sentinel_nodes"])
        print(f"REDIS_SENTINEL_MASTER={redis['sentinel_master']}")
        print(f"REDIS_SENTINEL_NODES={nodes}")
    print(f"REDIS_URL={shlex.quote(str(summary['redis_url']))}")
    print(f"export KUBECONFIG={shlex.quote(str(summary['kubeconfig']))}", flush=True)
