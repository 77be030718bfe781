"""The jars that audits need beside Spark's own: Delta Lake, and what s3a:// needs.

Spark's resolver downloads them once into the cache. They then lie among the jars of the PySpark
that is installed, so that no session has to name them. `requirements/jars.sha256` lists them, with
the checksum of each.

`python -m local_cluster.spark_jars` puts them there and prints the directory; exit code 1 when it
cannot.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from local_cluster.binaries import cache_directory
from local_cluster.errors import LocalClusterError
from local_cluster.java import require_java
from local_cluster.progress import report, step

ROOT = Path(__file__).parents[1]
CHECKSUMS = ROOT / "requirements" / "jars.sha256"
FETCH_JARS = ROOT / "tools" / "pipeline_image" / "fetch_jars.py"
REPOSITORY = "DEFAULT_ARTIFACT_REPOSITORY"  # Spark's own variable: a mirror of Maven Central
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
DOWNLOAD_S = 900.0
_PACKAGES = re.compile(r"^ARG SPARK_PACKAGES=(\S+)", re.MULTILINE)
_REASON = re.compile(
    r"\s*(Server access error.*|Host \S+ not found|unresolved dependency: [^,\]]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJars:
    """The jars, and the directories that hold them."""

    digests: Mapping[str, str]  # file name -> SHA-256
    spark: Path  # where Spark finds its jars
    cache: Path  # where a download of any set of jars is kept
    program: Path = FETCH_JARS
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @classmethod
    def here(cls) -> "SparkJars":
        """Those of this repository, and the PySpark of this Python. Raises LocalClusterError."""
        found = find_spec("pyspark")
        if found is None or found.origin is None:
            raise LocalClusterError("PySpark is not installed: make .venv/.installed")
        lines = (line.split(maxsplit=1) for line in CHECKSUMS.read_text().splitlines())
        return cls(
            digests={name: digest for digest, name in lines},
            spark=Path(found.origin).parent / "jars",
            cache=cache_directory() / "spark-jars",
        )

    @property
    def kept(self) -> Path:
        """The download of exactly these jars."""
        text = "".join(f"{digest} {name}\n" for name, digest in sorted(self.digests.items()))
        return self.cache / hashlib.sha256(text.encode()).hexdigest()[:24]


def find_packages() -> str:
    """The Maven packages that the images have, as GROUP:NAME:VERSION,... Raises ValueError."""
    found = _PACKAGES.search((ROOT / "Dockerfile").read_text())
    if found is None:
        raise ValueError("the Dockerfile names no SPARK_PACKAGES")
    return found[1]


def are_installed(jars: SparkJars | None = None) -> bool:
    """Whether exactly these jars are among Spark's own. Raises LocalClusterError."""
    jars = jars or SparkJars.here()
    return not _differences(jars, jars.spark)


def provide_spark_jars(jars: SparkJars | None = None) -> Path:
    """Put the jars among Spark's own, each with its checksum; returns the directory.

    Does nothing more than compare where they are there already. Other versions of them are removed.

    Raises LocalClusterError: they cannot be downloaded, or are not those that are listed.
    """
    jars = jars or SparkJars.here()
    jars.cache.mkdir(parents=True, exist_ok=True)
    with (jars.cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wrong = _differences(jars, jars.spark)
        if wrong and _differences(jars, jars.kept):
            _download(jars)
        for name in wrong:
            # Not the jar itself: a session that begins now must not read half of it.
            unfinished = jars.spark / f".{name}.unfinished"
            shutil.copyfile(jars.kept / name, unfinished)
            unfinished.replace(jars.spark / name)
        _remove_others(jars)
    return jars.spark


def main() -> int:
    """Provide them; returns the exit code."""
    try:
        print(provide_spark_jars())
    except LocalClusterError as error:
        report(f"error: {error}")
        return 1
    return 0


def _differences(jars: SparkJars, directory: Path) -> list[str]:
    """The names of the jars that are missing there, or are not those that are listed."""
    return [
        name
        for name, digest in jars.digests.items()
        if not (directory / name).is_file()
        or hashlib.sha256((directory / name).read_bytes()).hexdigest() != digest
    ]


def _remove_others(jars: SparkJars) -> None:
    """Remove what an earlier list had: Spark's own jars are not named after their groups."""
    groups = {f"{name.partition('_')[0]}_" for name in jars.digests}
    for jar in jars.spark.glob("*.jar"):
        if jar.name.startswith(tuple(groups)) and jar.name not in jars.digests:
            jar.unlink()


def _download(jars: SparkJars) -> None:
    """Replace what is kept."""
    packages = find_packages()
    site = jars.variables.get(REPOSITORY, MAVEN_CENTRAL)
    names = " and ".join(one.split(":")[1] for one in packages.split(","))
    with tempfile.TemporaryDirectory(dir=jars.cache) as scratch:
        target = Path(scratch, "jars")
        with step(f"downloading {len(jars.digests)} jars of {names} from {site}"):
            said = _run_resolver(jars, packages, target)
            wrong = _differences(jars, target)
            if wrong:
                raise LocalClusterError(_explain(jars, site, wrong, said))
        shutil.rmtree(jars.kept, ignore_errors=True)
        target.rename(jars.kept)


def _run_resolver(jars: SparkJars, packages: str, target: Path) -> str:
    """What it printed; the files show whether it succeeded."""
    environment = {**jars.variables, "JAVA_HOME": str(require_java())}
    try:
        ended = subprocess.run(
            [sys.executable, str(jars.program), packages, str(target)],
            env=environment,
            cwd=target.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DOWNLOAD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Server access error: no answer within {DOWNLOAD_S:.0f} s"
    return ended.stdout.decode(errors="replace")


def _explain(jars: SparkJars, site: str, wrong: list[str], said: str) -> str:
    found = [match[1] for line in said.splitlines() if (match := _REASON.match(line))]
    reasons = list(dict.fromkeys(found))[:3] or said.strip().splitlines()[-1:] or ["no output"]
    return f"""the jars that audits need beside Spark's own cannot be downloaded from {site}.
{len(wrong)} of {len(jars.digests)} are missing or differ from {CHECKSUMS.name}, such as {wrong[0]}:
  {"; ".join(reasons)}
Do one of these:
  - allow this machine to reach {site};
  - name a mirror of Maven Central in {REPOSITORY};
  - copy the directory {jars.kept} from a machine that has it."""


if __name__ == "__main__":
    sys.exit(main())
