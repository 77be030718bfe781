"""The images agree with what the operator expects of them, as far as that shows without Docker."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import pyspark
import pytest

from pelops.kube.audit_cron_job import COMMAND, USER
from pelops.kube.audit_spark import MAIN_FILE, SPARK_VERSION
from pelops.kube.container_environment import WORK_MOUNT
from tests.operators import ROOT
from tests.unit.conftest import Install
from tools.supply_chain.components import OURS
from tools.supply_chain.distributions import DISTRIBUTIONS, PARTS

TOOLS = ROOT / "tools" / "pipeline_image"
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
# Refuses to import any package of a distribution that the first argument does not name.
ONLY = """
import runpy, sys
class Adapter:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)
refused = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Adapter())
sys.argv[0] = "pelops.pipeline"
import pelops.pipeline.report.pages, pelops.pipeline.triage.redrive_plan
import pyspark_redis_streams.source
runpy.run_module("pelops.pipeline", run_name="__main__")
"""


def stage(name: str) -> list[list[str]]:
    """The instructions of one stage, each cut into words."""
    found = re.split(r"^FROM \S+(?: AS (\S+))?$", DOCKERFILE, flags=re.MULTILINE)
    text = dict(zip(found[1::2], found[2::2], strict=True))[name]
    lines = (line.strip() for line in text.splitlines())
    return [line.split() for line in lines if line and not line.startswith("#")]


def variables(name: str) -> dict[str, str]:
    words = [word for one in stage(name) if one[0] == "ENV" for word in one[1:]]
    return dict(shlex.split(word)[0].split("=", 1) for word in words)


def copies(name: str) -> Iterator[tuple[str, str]]:
    """What a stage takes from this repository, and to where."""
    for _, *sources, target in (one for one in stage(name) if one[0] == "COPY"):
        if not sources[0].startswith("--from="):
            yield from ((source, target) for source in sources)


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text, re.MULTILINE))


def run(*argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env=os.environ | variables, capture_output=True, text=True, check=False, cwd=ROOT
    )


IMAGES = ("operator", "pipeline")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_without_rights(name: str) -> None:
    assert ["USER", f"{USER}:{USER}"] in stage(name)
    # Only a user of another stage installs anything: nothing follows but metadata.
    after = [line[0] for line in stage(name)][stage(name).index(["USER", f"{USER}:{USER}"]) + 1 :]
    assert set(after) <= {"ENTRYPOINT", "CMD"}


@pytest.mark.parametrize(
    "name",
    ["packages", "wheel", "operator-packages", "spark", "jars", "pipeline-packages", "pipeline"],
)
def test_what_is_copied_is_there_and_not_ignored(name: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert list(copies(name))
    for source, _ in copies(name):
        assert (ROOT / source).exists()
        assert PurePosixPath(source).parts[0] not in ignored


def test_the_main_file_of_spark_applications_is_where_they_look_for_it() -> None:
    places = {f"local://{target}{Path(source).name}" for source, target in copies("pipeline")}
    assert MAIN_FILE in places
    ended = run(sys.executable, str(TOOLS / Path(MAIN_FILE).name), "audit", "--help")
    assert ended.returncode == 0 and "PELOPS_AUDIT_ARCHIVE" in ended.stdout


def test_every_file_that_the_code_reads_is_installed_with_it() -> None:
    projects = (ROOT / one.project / "pyproject.toml" for one in DISTRIBUTIONS)
    declared = [tomllib.loads(path.read_text())["tool"]["setuptools"] for path in projects]
    installed = {
        path
        for setuptools in declared
        for package, patterns in setuptools.get("package-data", {}).items()
        for pattern in patterns
        for path in (ROOT / "operator").joinpath(*package.split(".")).glob(pattern)
    }
    others = {".py", ".pyc", ".md"}
    present = (path for path in (ROOT / "operator").rglob("*") if path.is_file())
    needed = {path for path in present if path.suffix not in others}
    of_tools = re.compile(r"/\.|\.egg-info/")
    made = {path for path in needed if of_tools.search(str(path.relative_to(ROOT)))}
    assert needed - made == installed


def test_versions_are_those_that_were_tested() -> None:
    assert pins("pipeline").items() <= pins("dev").items()
    assert pins("pipeline")["pyspark"] == SPARK_VERSION == pyspark.__version__
    hadoop = re.search(r"hadoop-aws:([0-9.]+)", DOCKERFILE)
    assert hadoop is not None
    jars = Path(pyspark.__path__[0], "jars")
    assert (jars / f"hadoop-client-api-{hadoop[1]}.jar").exists()


def test_every_input_of_the_images_has_a_hash() -> None:
    """A digest of the base image, `--require-hashes` for packages, a compared file for the rest."""
    starts = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
    stages = {name for _, name in starts}
    assert [image for image, _ in starts if image not in stages] == ["${PYTHON_IMAGE}"]
    installs = re.findall(r"pip install ([^&\n]+)", DOCKERFILE)
    assert len(installs) == 5
    for install in installs:
        *options, wheels = install.split()
        own = options == ["--no-cache-dir", "--no-deps", "--no-index"]
        assert not own or wheels in {"/wheel/*.whl", "/wheel/pelops_*.whl"}
        # A package without a wheel would be built with what pip fetches without a hash.
        assert own or {"--require-hashes", "--only-binary"} <= set(install.split())
        assert "--no-binary" not in install or "--no-build-isolation" in install
    (made,) = re.findall(r"pip wheel ([^&\n]+)", DOCKERFILE)
    assert {"--no-deps", "--no-build-isolation"} <= set(made.split())
    java = " ".join(word for line in stage("java") for word in line)
    assert java.index("--download-only") < java.index("verify_files.py /build/debian-")
    assert java.index("verify_files.py /build/debian-") < java.index("--no-download")
    assert DOCKERFILE.count("apt-get install") == 2
    assert ("requirements/jars.sha256", "./") in copies("pipeline-packages")
    assert not re.search(r"\b(curl|wget|ADD)\b", DOCKERFILE)


CHECKED = {"a.jar": b"one", "b.jar": b"two"}


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        (CHECKED, ["--complete"], None),
        ({"a.jar": b"one"}, [], None),
        ({**CHECKED, "other.txt": b""}, ["--complete"], None),
        ({"a.jar": b"one"}, ["--complete"], "b.jar is missing"),
        ({"a.jar": b"One"}, [], "a.jar has the SHA-256 "),
        ({**CHECKED, "c.jar": b"three"}, [], "c.jar is not listed"),
        ({}, [], "no file in "),
    ],
)
def test_what_was_fetched_is_compared(
    tmp_path: Path, files: dict[str, bytes], options: list[str], said: str | None
) -> None:
    checksums = tmp_path / "checksums"
    checksums.write_text(
        "".join(f"{sha256(data).hexdigest()}  {name}\n" for name, data in CHECKED.items())
    )
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    for name, data in files.items():
        (fetched / name).write_bytes(data)
    program = str(TOOLS / "verify_files.py")
    ended = run(sys.executable, program, *options, str(checksums), str(fetched), "*.jar")
    assert ended.returncode == (0 if said is None else 1), ended.stderr
    assert said is None or said in ended.stderr


INDEX = json.dumps(
    {"manifests": [{"platform": {"architecture": one}} for one in ("amd64", "arm64")]}
)
DIGEST = f"sha256:{sha256(INDEX.encode()).hexdigest()}"
OTHER = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("named", "reported", "index", "said"),
    [
        ("python:1", DIGEST, INDEX, f"image=python:1@{DIGEST}\n"),
        (f"python:1@{DIGEST}", OTHER, INDEX, f"image=python:1@{DIGEST}\n"),  # kept as it is
        (f"python:1@{OTHER}", OTHER, INDEX, f"the registry returned {DIGEST} for python:1@{OTHER}"),
        ("python:1", OTHER, INDEX, f"the registry returned {DIGEST} for python:1@{OTHER}"),
        ("python:1", None, "{}", "has no image for amd64"),
    ],
)
def test_the_digest_of_the_base_image_is_resolved_and_verified(
    tmp_path: Path, install: Install, named: str, reported: str | None, index: str, said: str
) -> None:
    """A stand-in for Docker: no registry can be asked where the tests run."""
    if reported is None:
        index = '{"manifests": []}'
        reported = f"sha256:{sha256(index.encode()).hexdigest()}"
    (tmp_path / "index").write_text(index)
    install(
        "docker",
        f'case "$*" in *--raw*) cat {tmp_path}/index;;'
        f""" *) echo '{{"digest": "{reported}"}}';; esac\n""",
    )
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"ARG PYTHON_IMAGE={named}\nFROM ${{PYTHON_IMAGE}}\n")
    ended = run(str(TOOLS / "resolve_base.sh"), str(dockerfile))
    assert said in ended.stdout + ended.stderr
    assert ended.returncode == (0 if said.startswith("image=") else 1)
    assert ended.stdout == (said if ended.returncode == 0 else "")


def test_the_pinned_packages_are_all_that_the_pipeline_imports() -> None:
    pinned = set(pins("pipeline"))
    refused = [
        package
        for package, owners in packages_distributions().items()
        if not {owner.lower().replace("_", "-") for owner in owners} & {*pinned, OURS, *PARTS}
    ]
    assert {"kubernetes", "kopf"} <= set(refused)
    command = [*COMMAND[3:], "--help"]
    ended = run(sys.executable, "-c", ONLY, ",".join(refused), *command)
    assert ended.returncode == 0, ended.stderr


def test_an_executor_is_started_with_what_its_driver_said(install: Install) -> None:
    install("java", 'echo java; printf "%s\\n" "$@"\n')
    reported = {
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
        **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number} of 11" for number in range(11)},
    }
    given = {"SPARK_HOME": "/spark", "TMPDIR": WORK_MOUNT, **reported}
    ended = run(str(TOOLS / "entrypoint.sh"), "executor", **given)
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.splitlines()
    assert said[0] == "java"
    assert [one for one in said if "of 11" in one] == [f"-Dnumber={n} of 11" for n in range(11)]
    assert said[said.index("-cp") + 1] == "/spark/jars/*"
    assert {"-Xmx1g", f"-Djava.io.tmpdir={WORK_MOUNT}"} <= set(said)
    assert said[said.index("--driver-url") + 1] == "spark://driver"
    assert said[said.index("--podName") + 1] == "pod"
