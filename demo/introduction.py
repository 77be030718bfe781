"""What a person reads before and after the demo."""

from demo.playground import OPTIONS
from demo.steps import INSTALL, Steps
from local_cluster.binaries import cache_directory, is_control_plane_installed
from local_cluster.java import Machine, find_java
from local_cluster.redis_servers import is_installed
from local_cluster.spark_jars import are_installed

CONTROL_PLANE = (
    "Kubernetes control plane: downloaded from dl.k8s.io and github.com (about 300 MB). Where these"
    " cannot be reached, it is built from Go modules, which takes 10 minutes or more"
)
REDIS = "Redis: packages of Debian, unpacked without an installation"
JAVA = "Java: default-jre-headless by apt-get, as root; without root, install it or set JAVA_HOME"
JARS = "Delta Lake and S3 for Spark: jars of Maven Central (about 25 MB), copied into .venv"
NEXT = "\n".join(
    [
        "Next:",
        "  build/audit.html, build/demo.svg         the report; backlog and workers over time",
        "  make demo KEEP=1                         run it again, and keep the cluster",
        "  docs/get-started/quickstart.md           use Pelops on your own cluster",
        "  docs/guides/adopt-a-deployment.md        let it manage workers that you already run",
    ]
)
NEXT_ON_CLUSTER = "\n".join(
    [
        "In the cluster:",
        "  .venv/bin/pelops status -n demo          both groups; with a name, one in detail",
        "  .venv/bin/pelops top -n demo             backlog, workers, and rates, as they change",
        "  .venv/bin/pelops why indexers ID -n demo what became of an entry",
        "  kubectl describe scg indexers -n demo    conditions and Events of one group",
        "  kubectl get srd,saudit -n demo           the redrive and the audit",
    ]
)


def list_missing() -> list[str]:
    """What this run installs, for people; empty when everything is there."""
    missing = []
    if not is_control_plane_installed():
        missing.append(CONTROL_PLANE)
    if not is_installed(OPTIONS.redis):
        missing.append(REDIS)
    if find_java(Machine.here()) is None:
        missing.append(JAVA)
    if not are_installed():
        missing.append(JARS)
    return missing


def render_introduction(steps: Steps, missing: list[str]) -> str:
    """What the run installs, and its steps."""
    if INSTALL in steps.texts:
        lines = [f"This run installs into {cache_directory()}:", *(f"  {one}" for one in missing)]
    else:
        lines = [f"Everything that it needs is in {cache_directory()} or on this machine."]
    return "\n".join(
        [
            "The demo runs on this machine only. It needs no container engine, and does not use"
            " your kubeconfig.",
            *lines,
            f"Steps{steps.describe_last_total()}:",
            steps.describe(),
        ]
    )
