"""The wheels of a release, installed into empty environments: each extra has all that it needs.

`make test` puts the packages that an extra declares, directly or not, into an environment that has
nothing else. `make test-full` lets pip install the pinned versions, and also runs what takes long:
Spark with Java, and the operator on a control plane.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from local_cluster.operators import ALLOWED_NETWORKS, GROUPS, SERVICE_ACCOUNT, is_ready
from local_cluster.plane import ControlPlane
from local_cluster.processes import free_port, start_process, wait_until
from local_cluster.redis_servers import StandaloneServers
from pelops.build import version
from tests.docs_pages import list_blocks
from tests.operators import Resources
from tools.supply_chain.components import OURS, list_packages, needed_by_extra, read_pins
from tools.supply_chain.dist import build_archives
from tools.supply_chain.distributions import CORE, DISTRIBUTIONS, SPARK_SOURCE

pytestmark = pytest.mark.full

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = "0123456789abcdef0123456789abcdef01234567"
BUILD: Final = f"{version()} (revision {COMMIT})"
STREAM: Final = "orders:events"
GROUP: Final = "order-processing"
EXTRAS: Final = ("operator", "worker", "cli", "spark", "pipeline")
# Packages that one extra alone brings, by the names of their modules.
LARGE: Final = {
    "kopf": {"operator"},
    "kubernetes": {"operator"},
    "aiohttp": {"operator"},
    "pydantic": {"operator", "cli", "pipeline"},
    "yaml": {"operator", "cli"},
    "prometheus_client": {"operator", "worker"},
    "pyspark": {"spark", "pipeline"},
    "pyarrow": {"spark", "pipeline"},
    "deltalake": {"pipeline"},
}
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
IMPORT_ALL: Final = """
import importlib, pkgutil, pyspark_redis_streams as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(package.DefaultSource.name())
"""
# What Spark calls for a batch read, without Java.
READ: Final = """
import sys
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType
from pyspark_redis_streams import DefaultSource

url, stream = sys.argv[1:]
source = DefaultSource(CaseInsensitiveDict({"url": url, "path": stream}))
reader = source.reader(StructType([StructField("number", StringType())]))
batches = [batch for part in reader.partitions() for batch in reader.read(part)]
print([value for batch in batches for value in batch.column(0).to_pylist()])
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and its programs."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> Environment:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
        return cls(path)

    @property
    def packages(self) -> Path:
        (found,) = self.path.glob("lib/python3*/site-packages")
        return found

    def program(self, name: str) -> str:
        return str(self.path / "bin" / name)

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """Those of this process, without any that leads to the packages of this repository."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PELOPS", "PYTHON", "PYSPARK", "SPARK"))
        }
        path = f"{self.path / 'bin'}:{kept['PATH']}"
        return {**kept, "VIRTUAL_ENV": str(self.path), "PATH": path, **more}

    def run(
        self, *argv: str, cwd: Path | None = None, code: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [self.program(argv[0]), *argv[1:]],
            cwd=cwd or self.path,
            env=self.variables(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    def link(self, names: Iterable[str]) -> None:
        """Make installed packages of this process importable: these, and nothing else."""
        for name in names:
            found = distribution(name)
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                link = self.packages / top
                if not link.exists():  # several distributions share a namespace
                    link.symlink_to(Path(str(found.locate_file(top))).resolve())


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The source archives and the wheels of a release."""
    directory = tmp_path_factory.mktemp("dist")
    return build_archives(ROOT, directory, 1_700_000_000, COMMIT)


@pytest.fixture(scope="module")
def wheels(archives: list[Path]) -> list[Path]:
    return [path for path in archives if path.suffix == ".whl"]


def install(environment: Environment, *arguments: str) -> None:
    subprocess.run([*PIP, "--python", environment.program("python"), *arguments], check=True)


@pytest.fixture(scope="module")
def installed(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheels, with what they need without an extra."""
    made = Environment.create(tmp_path_factory.mktemp("installed") / "venv")
    install(made, "install", "--no-index", "--no-deps", "--no-compile", *map(str, wheels))
    made.link(one.name for one in list_packages() if one.extras >= set(EXTRAS))
    return made


def with_extra(installed: Environment, path: Path, extra: str) -> Environment:
    """The wheels with the packages that the extra declares."""
    made = Environment.create(path)
    for one in installed.packages.iterdir():
        (made.packages / one.name).symlink_to(one)
    made.link(one.name for one in list_packages() if extra in one.extras)
    return made


def refuse_others(environment: Environment, extra: str) -> None:
    """No package of another extra is there: what runs, runs without it."""
    program = (
        "import sys\nfrom importlib.util import find_spec\nprint(*filter(find_spec, sys.argv[1:]))"
    )
    found = environment.run("python", "-c", program, *LARGE).stdout.split()
    assert set(found) == {name for name, extras in LARGE.items() if extra in extras}


def test_an_installed_package_shows_its_version_and_commit(installed: Environment) -> None:
    """`pelops` needs no extra, and names the extra of a command that does."""
    assert installed.run("pelops", "--version").stdout == f"pelops {BUILD}\n"
    keys = installed.run("pelops", "keys", "--stream", STREAM, "--group", GROUP).stdout
    assert json.loads(keys)["dead_letter"] == f"{{{STREAM}}}:{GROUP}:dlq"
    missing = installed.run("pelops", "env", "--file", "any.yaml", code=1).stderr
    assert "Install Pelops with the extra [cli]" in missing


def run_worker(environment: Environment, servers: StandaloneServers, directory: Path) -> None:
    """docs/worker/index.md: one order is shipped, the other one becomes a dead letter."""
    code, *_ = (one.code for one in list_blocks("python") if one.page == "docs/worker/index.md")
    (directory / "worker.py").write_text(code)
    server: Any = redis.Redis.from_url(servers.url, decode_responses=True)
    server.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    server.xadd(STREAM, {"order": '{"number": 1, "customer": "Ada"}'})
    server.xadd(STREAM, {"order": '{"number": 2}'})
    place = {"PELOPS_REDIS_URL": servers.url, "PELOPS_STREAM": STREAM, "PELOPS_GROUP": GROUP}
    started = start_process(
        "installed-worker",
        [environment.program("python"), "-u", str(directory / "worker.py")],
        log=directory / "worker.log",
        env=environment.variables(place),
        cwd=directory,
    )
    try:
        wait_until(
            lambda: (
                server.xlen(f"{{{STREAM}}}:{GROUP}:dlq") == 1
                and server.xpending(STREAM, GROUP)["pending"] == 0
            ),
            timeout_s=60,
            what=f"both orders to be done:\n{started.tail()}",
        )
        started.send(signal.SIGTERM)
        assert started.ends_within(60)
        assert started.exit_code == 0, started.tail()
        assert "shipped 1 for Ada" in started.tail(100)
    finally:
        started.stop()


def run_cli(environment: Environment) -> None:
    quickstart = str(ROOT / "examples" / "quickstart.yaml")
    printed = environment.run("python", "-m", "pelops.cli", "env", "--file", quickstart).stdout
    assert f"value: {STREAM}" in printed


def run_pipeline(environment: Environment, servers: StandaloneServers, directory: Path) -> None:
    """An audit of a small window."""
    server: Any = redis.Redis.from_url(servers.url, decode_responses=True)
    server.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    server.xadd(STREAM, {"order": "1"})
    (_, ((entry, _),)), *_ = server.xreadgroup(GROUP, "worker-1", {STREAM: ">"})
    server.xack(STREAM, GROUP, entry)
    words = ["--stream", STREAM, "--group", GROUP, "--archive", str(directory / "archive")]
    ended = environment.run(
        *("python", "-m", "pelops.pipeline", "audit", *words),
        PELOPS_REDIS_URL=servers.url,
    )
    assert (directory / "archive" / "report" / "audit.html").exists(), ended.stderr
    assert f"Pelops {BUILD}: Redis at " in ended.stderr


def run_operator_alone(environment: Environment) -> None:
    """Without a cluster it says what build it is, and why it cannot start."""
    program = ("python", "-m", "pelops.controller")
    assert environment.run(*program, "--version").stdout == f"pelops-operator {BUILD}\n"
    ended = environment.run(*program, "--kubeconfig", "missing", "--http-port", "0", code=1)
    first, *_ = map(json.loads, ended.stderr.splitlines())
    assert first["revision"] == COMMIT
    assert "Could not start" in ended.stderr


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_declares_all_that_its_part_needs(
    installed: Environment,
    empty_redis_86: StandaloneServers,
    tmp_path: Path,
    extra: str,
    request: pytest.FixtureRequest,
) -> None:
    environment = with_extra(installed, tmp_path / "venv", extra)
    refuse_others(environment, extra)
    if extra == "operator":
        run_operator_alone(environment)
    elif extra == "worker":
        run_worker(environment, empty_redis_86, tmp_path)
    elif extra == "cli":
        run_cli(environment)
    elif extra == "spark":
        assert environment.run("python", "-c", IMPORT_ALL).stdout == "redis_streams\n"
    else:
        request.getfixturevalue("spark_jars")
        run_pipeline(environment, empty_redis_86, tmp_path)


def test_pelops_worker_is_the_sdk_in_the_same_version(
    wheels: list[Path], installed: Environment
) -> None:
    project = tomllib.loads((ROOT / "packages" / "pelops-worker" / "pyproject.toml").read_text())
    assert project["project"]["version"] == version()
    assert project["project"]["dependencies"] == [f"{OURS}[worker]=={version()}"]
    names = [path.name.partition("-")[0].replace("_", "-") for path in wheels]
    assert names == [one.name for one in DISTRIBUTIONS]
    (metadata,) = installed.packages.glob("pelops_worker-*.dist-info")
    files = {line.partition(",")[0] for line in (metadata / "RECORD").read_text().splitlines()}
    assert {Path(name).parts[0] for name in files} == {metadata.name}, "it has no code of its own"


def test_no_file_is_installed_by_two_packages(installed: Environment) -> None:
    owned = [
        line.partition(",")[0]
        for record in installed.packages.glob("*.dist-info/RECORD")
        if not record.is_symlink() and not record.parent.is_symlink()
        for line in record.read_text().splitlines()
    ]
    assert len(owned) > 300
    assert sorted({name for name in owned if owned.count(name) > 1}) == []


@pytest.fixture(scope="module")
def data_source(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The data source's wheel and those of Pelops that it needs, with third-party packages."""
    made = Environment.create(tmp_path_factory.mktemp("data-source") / "venv")
    own = select(wheels, CORE.name, SPARK_SOURCE.name)
    install(made, "install", "--no-index", "--no-deps", "--no-compile", *map(str, own))
    made.link(one.name for one in list_packages() if "spark" in one.extras)
    return made


def select(wheels: list[Path], *names: str) -> list[Path]:
    """The wheels of these distributions."""
    wanted = {name.replace("-", "_") for name in names}
    return [path for path in wheels if path.name.partition("-")[0] in wanted]


def test_the_data_source_is_small_and_brings_no_operator(
    wheels: list[Path], data_source: Environment
) -> None:
    own = select(wheels, CORE.name, SPARK_SOURCE.name)
    assert len(own) == 2
    assert sum(path.stat().st_size for path in own) < 400 * 1024
    refuse_others(data_source, "spark")
    assert data_source.run("python", "-c", IMPORT_ALL).stdout == "redis_streams\n"
    parts = {path.name for path in (data_source.packages / "pelops").iterdir() if path.is_dir()}
    assert parts - {"__pycache__"} == {"domain", "redis_core"}
    assert not list((data_source.path / "bin").glob("*pelops*"))


def test_the_data_source_alone_reads_a_stream(
    data_source: Environment, empty_redis_86: StandaloneServers
) -> None:
    server: Any = redis.Redis.from_url(empty_redis_86.url, decode_responses=True)
    for number in range(3):
        server.xadd(STREAM, {"number": str(number)})
    ended = data_source.run("python", "-c", READ, empty_redis_86.url, STREAM)
    assert ended.stdout == "['0', '1', '2']\n"


def test_the_data_source_says_which_package_is_missing(wheels: list[Path], tmp_path: Path) -> None:
    """On a Python without PySpark, which no dependency installs."""
    made = Environment.create(tmp_path / "venv")
    own = select(wheels, CORE.name, SPARK_SOURCE.name)
    install(made, "install", "--no-index", "--no-deps", "--no-compile", *map(str, own))
    ended = made.run("python", "-c", "import pyspark_redis_streams", code=1)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: pyspark_redis_streams needs PySpark 4.0 or later")
    assert last.endswith("pip install 'pyspark-redis-streams[spark]'")


def test_a_clone_installs_what_a_release_has(wheels: list[Path], tmp_path: Path) -> None:
    """`pip install ./packages/...` of a copy without git, links, or an index."""
    copy = tmp_path / "clone"
    for one in DISTRIBUTIONS:
        for name in one.packed:
            source, target = ROOT / name, copy / name
            if source.is_file():
                shutil.copyfile(source, target)
            elif not target.exists():
                ignored = shutil.ignore_patterns("src", "build", "__pycache__", "*.egg-info")
                shutil.copytree(source, target, ignore=ignored)
    projects = [str(copy / one.project) for one in DISTRIBUTIONS]
    built = ["wheel", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*PIP, *built, "--wheel-dir", str(tmp_path / "made"), *projects], check=True)

    def contents(path: Path) -> set[str]:
        return set(zipfile.ZipFile(path).namelist()) - {"pelops/REVISION"}

    for wheel in wheels:
        assert contents(tmp_path / "made" / wheel.name) == contents(wheel), wheel.name


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned versions for pip. Skips the test if pip cannot install anything here."""
    directory = tmp_path_factory.mktemp("pins")
    pinned = read_pins("dev")
    asked = [
        *PIP,
        "download",
        "--no-deps",
        "--dest",
        str(directory),
        f"redis=={pinned['redis'].version}",
    ]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("pip reaches no package index")
    path = directory / "constraints.txt"
    path.write_text("".join(f"{name}=={pin.version}\n" for name, pin in pinned.items()))
    return path


def install_released(
    path: Path, what: str, wheels: list[Path], pins: Path, *others: str
) -> Environment:
    made = Environment.create(path)
    found = ("--find-links", str(wheels[0].parent))
    install(made, "install", "--no-compile", *found, "--constraint", str(pins), what, *others)
    return made


@pytest.mark.full
@pytest.mark.parametrize("name", ["pelops-worker", f"{OURS}[worker]"])
def test_the_worker_is_installed_by_pip(
    wheels: list[Path], pins: Path, empty_redis_86: StandaloneServers, tmp_path: Path, name: str
) -> None:
    made = install_released(tmp_path / "venv", f"{name}=={version()}", wheels, pins)
    refuse_others(made, "worker")
    assert made.run("pelops", "--version").stdout == f"pelops {BUILD}\n"
    direct = {"redis", "prometheus-client"}
    assert {*needed_by_extra(None), *needed_by_extra("worker")} == direct
    run_worker(made, empty_redis_86, tmp_path)


@pytest.mark.full
def test_the_command_line_is_installed_by_pip(
    wheels: list[Path], pins: Path, tmp_path: Path
) -> None:
    made = install_released(tmp_path / "venv", f"{OURS}[cli]=={version()}", wheels, pins)
    refuse_others(made, "cli")
    run_cli(made)


@pytest.mark.full
def test_the_operator_is_installed_by_pip(
    wheels: list[Path],
    pins: Path,
    plane: ControlPlane,
    namespace: str,
    empty_redis_86: StandaloneServers,
    tmp_path: Path,
) -> None:
    made = install_released(tmp_path / "venv", f"{OURS}[operator]=={version()}", wheels, pins)
    refuse_others(made, "operator")
    run_operator_alone(made)
    run_operator(made, plane, namespace, empty_redis_86, tmp_path)


@pytest.mark.full
@pytest.mark.usefixtures("pins")
def test_the_commands_of_the_dockerfile_make_an_operator_that_runs(
    plane: ControlPlane, namespace: str, empty_redis_86: StandaloneServers, tmp_path: Path
) -> None:
    """What an image build runs, in directories of this test, with the Python of this machine."""
    made = Environment(tmp_path / "opt" / "pelops")
    context = tmp_path / "build"
    context.mkdir()
    for name in ("packages", "wheel", "operator-packages"):
        build_stage(name, context, tmp_path, made)
    assert not list(made.packages.glob("pip*")) and not list(made.packages.glob("setuptools*"))
    assert not (made.packages / "kubernetes" / "aio" / "client" / "api").exists()
    assert made.run("pelops-operator", "--version").stdout == f"pelops-operator {BUILD}\n"
    run_operator(made, plane, namespace, empty_redis_86, tmp_path)


def build_stage(name: str, context: Path, root: Path, made: Environment) -> None:
    """Run the COPY and RUN instructions of one stage below another root."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    found = re.split(r"^FROM \S+(?: AS (\S+))?$", text, flags=re.MULTILINE)
    stages = dict(zip(found[1::2], found[2::2], strict=True))
    variables = made.variables({"VERSION": version(), "REVISION": COMMIT})
    for line in stages[name].splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            for source in sources:
                place = context / (Path(source).name if target in {".", "./"} else target)
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, symlinks=True)
                else:
                    shutil.copy(ROOT / source, place)
        elif instruction == "RUN":
            command = re.sub(r"(?<=[ =(])/(opt|wheel)\b", f"{root}/\\1", rest)
            command = command.replace("python -m venv", f"{sys.executable} -m venv")
            subprocess.run(["sh", "-ec", command], cwd=context, env=variables, check=True)


def run_operator(
    environment: Environment,
    plane: ControlPlane,
    namespace: str,
    servers: StandaloneServers,
    directory: Path,
) -> None:
    """It makes a group on a real API server, with the rights of the manifests."""
    port = free_port()
    config = plane.kubeconfig_for(SERVICE_ACCOUNT, GROUPS)
    settings = {
        "PELOPS_ALLOWED_NETWORKS": ALLOWED_NETWORKS,
        "PELOPS_NAMESPACE": namespace,
        "PELOPS_IDENTITY": f"installed-{port}",
    }
    words = ["--kubeconfig", str(config), "--http-port", str(port)]
    started = start_process(
        "installed-operator",
        [environment.program("pelops-operator"), *words],
        log=directory / "operator.log",
        env=environment.variables(settings),
        cwd=directory,
    )
    try:
        wait_until(lambda: is_ready(port), timeout_s=120, what=f"readiness:\n{started.tail()}")
        resources = Resources(plane, namespace)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "orders-redis"}}
        resources.apply_raw({**secret, "stringData": {"url": servers.url}})
        connection = {"secretRef": {"name": "orders-redis"}}
        resources.apply(GROUP, {"redis": connection, "stream": STREAM})
        server: Any = redis.Redis.from_url(servers.url, decode_responses=True)
        wait_until(
            lambda: server.exists(STREAM) and len(server.xinfo_groups(STREAM)) == 1,
            timeout_s=120,
            what=f"the group:\n{started.tail()}",
        )
        resources.delete(GROUP, wait=True)
    finally:
        started.stop()


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_the_data_source_is_installed_by_pip(
    wheels: list[Path], pins: Path, java: Path, empty_redis_86: StandaloneServers, tmp_path: Path
) -> None:
    """docs/spark/index.md."""
    released = f"{SPARK_SOURCE.name}[spark]=={version()}"
    made = install_released(tmp_path / "venv", released, wheels, pins)
    refuse_others(made, "spark")
    server: Any = redis.Redis.from_url(empty_redis_86.url, decode_responses=True)
    for customer, amount in (("Ada", "12.50"), ("Bob", "3.00"), ("Ada", "7.25")):
        server.xadd(STREAM, {"customer": customer, "amount": amount})
    code, *_ = (one.code for one in list_blocks("python") if one.page == "docs/spark/index.md")
    assert "redis://127.0.0.1:6379" in code
    (tmp_path / "orders.py").write_text(code.replace("redis://127.0.0.1:6379", empty_redis_86.url))
    ended = made.run(
        "python", "orders.py", cwd=tmp_path, JAVA_HOME=str(java), SPARK_LOCAL_IP="127.0.0.1"
    )
    assert "|     Ada|      19.75|" in ended.stdout


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_the_pipeline_is_installed_by_pip(
    wheels: list[Path], pins: Path, java: Path, empty_redis_86: StandaloneServers, tmp_path: Path
) -> None:
    made = install_released(tmp_path / "venv", f"{OURS}[pipeline]=={version()}", wheels, pins)
    refuse_others(made, "pipeline")
    run_pipeline(made, empty_redis_86, tmp_path)
