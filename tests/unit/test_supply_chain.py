"""What a release contains is known, and made the same twice."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pelops.build import version as pelops_version
from tools.supply_chain import advisories
from tools.supply_chain.components import OURS, list_jars, list_packages
from tools.supply_chain.dist import CHECKSUMS, NOTICES, build, find_revision
from tools.supply_chain.distributions import DISTRIBUTIONS, PARTS
from tools.supply_chain.documents import render_bill_of_materials
from tools.supply_chain.plugin import MANIFEST

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
EPOCH = 1_700_000_000
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    """The bill of materials."""
    components = [*list_packages(), *list_jars()]
    document: dict[str, Any] = json.loads(render_bill_of_materials("0.1.0", components, EPOCH))
    return document


def locked(*names: str) -> dict[str, tuple[str, set[str]]]:
    """Version and hashes of what files of requirements install here, read line by line."""
    found: dict[str, tuple[str, set[str]]] = {}
    for name in names:
        current: set[str] = set()
        for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
            if (
                pinned := re.match(r"([\w.-]+)(?:\[.*\])?==(\S+)(?: ; (.+?))?(?: \\)?$", line)
            ) is not None:
                current = set()
                if pinned[3] is None or Marker(pinned[3]).evaluate():
                    found[canonicalize_name(pinned[1])] = (pinned[2], current)
            elif (digest := re.search(r"sha256:([0-9a-f]{64})", line)) is not None:
                current.add(digest[1])
    return found


def test_the_bill_lists_all_that_is_installed_with_version_licence_and_hashes(
    bill: dict[str, Any],
) -> None:
    images = locked("operator", "pipeline")
    listed = {one["name"]: one for one in bill["components"] if "group" not in one}
    assert listed.keys() == images.keys()
    assert len(listed) > 35
    for name, (version, digests) in images.items():
        component = listed[name]
        assert component["version"] == version == distribution(name).version
        assert {one["content"] for one in component["hashes"]} == digests != set()
        assert component["purl"] == f"pkg:pypi/{name}@{version}"
        (licence,) = component["licenses"]
        assert licence.get("expression") or licence["license"]["id"], name


def test_the_bill_lists_the_jars_of_the_pipeline_image(bill: dict[str, Any]) -> None:
    jars = {one["hashes"][0]["content"]: one for one in bill["components"] if "group" in one}
    lines = (ROOT / "requirements" / "jars.sha256").read_text().splitlines()
    assert jars.keys() == {line.split()[0] for line in lines}
    hadoop = next(one for one in jars.values() if one["name"] == "hadoop-aws")
    assert (hadoop["group"], hadoop["version"]) == ("org.apache.hadoop", "3.5.0")
    assert hadoop["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def test_a_release_is_the_same_when_it_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another path, time zone and umask, and with other times of the files."""
    first, second, copy = (tmp_path / name for name in ("first", "second", "copy"))
    first.mkdir()
    second.mkdir()
    made = build(ROOT, first, EPOCH, COMMIT)
    subprocess.run(["git", "init", "--quiet", str(copy)], check=True)
    for released, source in zip(DISTRIBUTIONS, made[: 2 * len(DISTRIBUTIONS) : 2], strict=True):
        with tarfile.open(source) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
        put_back(
            tmp_path / "unpacked" / source.name.removesuffix(".tar.gz"), copy, released.project
        )
    (copy / MANIFEST).parent.mkdir(parents=True)
    shutil.copyfile(ROOT / MANIFEST, copy / MANIFEST)
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)
    for path in copy.rglob("*.py"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    before = os.umask(0o077)
    try:
        again = build(copy, second, EPOCH, COMMIT)
    finally:
        os.umask(before)
    assert [path.name for path in again] == [path.name for path in made]
    for one, other in zip(made, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    checksums = (first / CHECKSUMS).read_text().splitlines()
    assert checksums == [
        f"{sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in made[:-1]
    ]
    assert NOTICES in {path.name for path in made}
    assert [path.name for path in made[: 2 * len(DISTRIBUTIONS)]] == [
        f"{one.name.replace('-', '_')}-{pelops_version()}{ending}"
        for one in DISTRIBUTIONS
        for ending in (".tar.gz", "-py3-none-any.whl")
    ]
    assert not (ROOT / "operator" / "pelops" / "REVISION").exists()
    wheels = [zipfile.ZipFile(path) for path in made if path.suffix == ".whl"]
    packed = [name for wheel in wheels for name in wheel.namelist()]
    assert len(packed) == len(set(packed)), "no file belongs to two distributions"
    (core,) = (wheel for wheel in wheels if "pelops/REVISION" in wheel.namelist())
    assert core.read("pelops/REVISION").decode() == f"{COMMIT}\n"
    tracked = subprocess.run(
        ["git", "ls-files", "operator"], cwd=copy, check=True, capture_output=True, text=True
    ).stdout.split()
    assert {name.removeprefix("operator/") for name in tracked} == {
        *(name for name in packed if ".dist-info/" not in name)
    }, "each file of operator/ is in one"
    for source in made[: 2 * len(DISTRIBUTIONS) : 2]:
        with tarfile.open(source) as archive:
            assert {member.mtime for member in archive} == {EPOCH}
            assert not any(member.issym() or member.islnk() for member in archive)
            assert not any("tests" in Path(member.name).parts[1:2] for member in archive)


def put_back(unpacked: Path, copy: Path, project: str) -> None:
    """Move the files of a source archive to where they are in the repository."""
    made = [*unpacked.rglob("*.egg-info"), unpacked / "PKG-INFO", unpacked / "setup.cfg"]
    for path in made:
        path.rename(unpacked.parent / f"{unpacked.name}-{path.name}")
    if (unpacked / "src").exists():
        shutil.copytree(unpacked / "src", copy / "operator", dirs_exist_ok=True)
        (unpacked / "src").rename(unpacked.parent / f"{unpacked.name}-src")
    shutil.copytree(unpacked, copy / project, dirs_exist_ok=True)


def test_all_distributions_have_one_version_and_are_pinned_to_it() -> None:
    for one in DISTRIBUTIONS:
        directory = ROOT / one.project
        project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
        assert (project["name"], project["version"]) == (one.name, pelops_version())
        assert (directory / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
        extras = project.get("optional-dependencies", {})
        asked = [*project["dependencies"], *(text for name in extras for text in extras[name])]
        for requirement in map(Requirement, asked):
            if requirement.name in {OURS, *PARTS} and requirement.name != one.name:
                assert str(requirement.specifier) == f"=={pelops_version()}", requirement


def test_a_release_names_its_commit_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "a.py").touch()

    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "a")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "operator" / "untracked.py").touch()  # is not packed
    (tmp_path / "other.md").touch()
    git("add", "other.md")
    assert find_revision(tmp_path) == commit
    (tmp_path / "operator" / "a.py").write_text("a = 1\n")
    assert find_revision(tmp_path) == f"{commit}-dirty"


def test_no_file_of_pins_names_a_registry_or_a_mirror() -> None:
    for path in (ROOT / "requirements").iterdir():
        text = path.read_text()
        assert "://" not in text and "--index" not in text, path.name
        if path.suffix == ".txt":
            assert "autogenerated by uv via the following command" in text


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_few_rights_and_names_each_action_by_its_commit(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
    for line in path.read_text().splitlines():
        if re.match(r" *(- )?uses: ", line):
            assert re.search(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("name", ["publish", "release"])
@pytest.mark.parametrize("pin", ["v4", "main", "11d5960", "v4 # " + "a" * 40, None])
def test_nothing_is_published_while_an_action_can_be_replaced(
    tmp_path: Path, name: str, pin: str | None
) -> None:
    """An attacker who takes an action over can move its tags; a commit cannot be moved."""
    copied = tmp_path / ".github" / "workflows"
    copied.mkdir(parents=True)
    for path in WORKFLOWS:
        (copied / path.name).write_text(path.read_text())
    if pin is not None:
        (copied / "other.yml").write_text(f"      - uses: actions/checkout@{pin}\n")
    (path,) = (one for one in WORKFLOWS if one.stem == name)
    jobs = yaml.safe_load(path.read_text())["jobs"]
    first = next(iter(jobs.values()))
    (check,) = (step["run"] for step in first["steps"] if "pinned" in step.get("name", ""))
    ended = subprocess.run(["bash", "-ec", check], cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode != 0) == (pin is not None)
    assert all(job is first or "needs" in job for job in jobs.values())


def test_the_images_begin_with_a_base_whose_content_is_known() -> None:
    """By tag and digest: the tag shows people and Renovate which one it is."""
    text = (ROOT / "Dockerfile").read_text()
    (named,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", named)


def test_the_threat_model_names_every_right_of_the_operator() -> None:
    text = (ROOT / "docs" / "architecture" / "threat-model.md").read_text()
    section = text.partition("## Kubernetes rights")[2].partition("\n## ")[0].lower()
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    roles = (ROOT / "manifests" / "base" / "cluster_role.yaml").read_text()
    for role in yaml.safe_load_all(roles):
        for rule in role.get("rules") or ():
            for resource in rule["resources"]:
                name, _, part = resource.partition("/")
                # The Namespace is one, all others are many.
                named = [row for row in rows if name in row or name.removesuffix("s") in row]
                matching = [row for row in named if part in row]
                granted = " ".join(row.split(" | ")[0] for row in matching)
                assert matching and all(f"`{verb}`" in granted for verb in rule["verbs"]), resource


FOUND = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
CLEAN = {"name": "b", "version": "1", "vulns": []}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("answers", "options", "code", "said"),
    [
        ({"pypi": [CLEAN]}, [], 0, "1 packages looked up, 0 vulnerabilities"),
        ({"pypi": [FOUND, CLEAN]}, [], 1, "a 1: PYSEC-1, fixed in 2"),
        ({"pypi": [CLEAN, UNKNOWN]}, [], 1, "not looked up: c"),
        # A registry that knows no advisories: pip-audit itself calls that a success.
        ({"pypi": [UNKNOWN], "osv": [CLEAN]}, [], 0, "1 packages looked up"),
        ({"pypi": [UNKNOWN], "osv": [FOUND]}, [], 1, "PYSEC-1"),
        ({"pypi": [UNKNOWN]}, [], 0, "skipped: no source of advisories answers: osv: no route"),
        ({}, ["--required"], 2, "skipped: no source of advisories answers"),
    ],
)
def test_advisories_count_as_checked_only_after_an_answer(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answers: dict[str, list[dict[str, Any]]],
    options: list[str],
    code: int,
    said: str,
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"answers = {answers!r}\n"
        'source = sys.argv[sys.argv.index("--vulnerability-service") + 1]\n'
        'if source not in answers: sys.exit("no route")\n'
        'print(json.dumps({"dependencies": answers[source], "fixes": []}))\n'
    )
    program.chmod(0o755)
    assert advisories.main([str(program), *options]) == code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
