"""The cluster that the demo runs on: gone with the demo, or left up under the default name."""

import io
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from demo.following import Following
from demo.steps import CLUSTER, INSTALL, STOP, Steps
from local_cluster.binaries import cache_directory, find_binaries
from local_cluster.cluster import Cluster, ClusterOptions
from local_cluster.commands import bring_down, bring_up
from local_cluster.errors import LocalClusterError
from local_cluster.java import Machine, provide_java
from local_cluster.kubeconfigs import Reader
from local_cluster.kubectl import kubectl_environment, run_kubectl
from local_cluster.processes import start_process
from local_cluster.progress import report, step
from local_cluster.records import Records
from local_cluster.redis_servers import find_binaries as find_redis
from local_cluster.spark_jars import provide_spark_jars
from local_cluster.state_directory import StateDirectory

OPTIONS = ClusterOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Playground:
    """A cluster that is up, and how to reach it."""

    kubectl_path: Path
    kubeconfig: Path
    redis_url: str
    state: Path  # a directory that is deleted with the cluster
    reader: Reader

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl prints, errors included unless `check`, with which they raise."""
        answer = run_kubectl(self.kubectl_path, self.kubeconfig, *args, stdin=stdin, check=check)
        return answer.stdout if check else answer.stdout + answer.stderr

    def follow(self, name: str, *args: str, log: Path) -> Following:
        """The lines of a long-running kubectl, such as `get --watch`; `log` must be a new file."""
        argv = [str(self.kubectl_path), *args]
        environment = kubectl_environment(self.kubeconfig)
        return Following(start_process(name, argv, log=log, env=environment))


@contextmanager
def open_playground(steps: Steps, *, keep: bool) -> Iterator[Playground]:
    """A cluster for the block; `keep` leaves it up unless the block is interrupted."""
    if INSTALL in steps.texts:
        with steps.run(INSTALL):
            find_binaries()
            find_redis(OPTIONS.redis)
            provide_java(Machine.here())
            provide_spark_jars()
    yield from _kept(steps) if keep else _temporary(steps)


def print_access(cluster: Playground) -> None:
    """Say how to use a cluster that was left up; the last line is for a shell."""
    report("The cluster is still running. Stop it with `make cluster-down`. To reach it:")
    print(f"REDIS_URL={shlex.quote(cluster.redis_url)}")
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}", flush=True)


def _temporary(steps: Steps) -> Iterator[Playground]:
    clusters = cache_directory() / "clusters"
    _remove_leftovers(clusters)
    directory = StateDirectory(clusters / f"demo-{os.getpid()}")
    with directory.claimed():
        directory.empty()
        try:
            yield from _up(directory.path, steps)
        except KeyboardInterrupt:
            directory.remove()
            raise
        except Exception:
            report(f"logs are kept in {directory.path} until the next demo")
            raise
        directory.remove()


def _up(state: Path, steps: Steps) -> Iterator[Playground]:
    with steps.run(CLUSTER):
        cluster = Cluster.up(state, OPTIONS)
    try:
        yield Playground(
            kubectl_path=cluster.plane.kubectl_path,
            kubeconfig=cluster.kubeconfig,
            redis_url=cluster.redis_url,
            state=state,
            reader=Reader(cluster.kubeconfig),
        )
    finally:
        with steps.run(STOP), step("stopping the cluster"):
            cluster.down()


def _remove_leftovers(clusters: Path) -> None:
    """Remove what demos that failed have left to read; one that is running is locked."""
    for path in clusters.glob("demo-*"):
        try:
            with StateDirectory(path).claimed():
                StateDirectory(path).remove()
        except LocalClusterError:
            continue


def _kept(steps: Steps) -> Iterator[Playground]:
    directory = StateDirectory(cache_directory() / "clusters" / "default")
    if any(one.is_alive() for one in Records(directory.path / "processes.json").read()):
        raise LocalClusterError(
            f"a cluster is running in {directory.path}; stop it first: make cluster-down"
        )
    try:
        # How to reach it is said at the very end.
        with steps.run(CLUSTER), redirect_stdout(io.StringIO()):
            bring_up(directory.path, OPTIONS, {})
        summary = directory.read_summary() or {}
        kubeconfig = Path(str(summary["kubeconfig"]))
        yield Playground(
            kubectl_path=find_binaries().paths["kubectl"],
            kubeconfig=kubeconfig,
            redis_url=str(summary["redis_url"]),
            state=directory.path,
            reader=Reader(kubeconfig),
        )
    except KeyboardInterrupt:
        bring_down(directory.path)
        raise
