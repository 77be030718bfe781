"""Java, which Spark needs: finds one that is new enough; as root on Debian it installs one.

`python -m local_cluster.java` prints its home; exit code 1 when there is none.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cluster.errors import LocalClusterError
from local_cluster.progress import report, step

OLDEST = 17  # that Spark 4 runs on
# Debian and Ubuntu have one or another of them, by their release.
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
ASKING_S = 30.0
NO_JAVA = f"""no Java {OLDEST} or newer, which Spark requires. Do one of these:
  - install one (Debian and Ubuntu: apt-get install default-jre-headless; as root this happens by
    itself) and run this again;
  - name the home of one in JAVA_HOME."""
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where Java may be, and what may be done about it."""

    variables: Mapping[str, str]  # JAVA_HOME and PATH
    is_root: bool
    installed: Path = Path("/usr/lib/jvm")  # homes that no variable names

    @classmethod
    def here(cls) -> "Machine":
        """This one."""
        return cls(variables=os.environ, is_root=os.geteuid() == 0)


def find_java(machine: Machine) -> Path | None:
    """The home of a Java that is new enough; None without one. JAVA_HOME comes first, then PATH."""
    return next((home for home in _homes(machine) if _version_of(home) >= OLDEST), None)


def require_java(machine: Machine | None = None) -> Path:
    """The home of a Java that is new enough. Raises LocalClusterError, which says what helps."""
    home = find_java(machine or Machine.here())
    if home is None:
        raise LocalClusterError(NO_JAVA)
    return home


def provide_java(machine: Machine) -> Path:
    """As `require_java`, but root installs one where apt-get can."""
    home = find_java(machine)
    apt_get = shutil.which("apt-get", path=machine.variables.get("PATH"))
    if home is None and machine.is_root and apt_get:
        with step("installing a Java runtime, which Spark needs, with apt-get"):
            _install(apt_get, machine)
    return require_java(machine)


def main() -> int:
    """Provide one; returns the exit code."""
    try:
        print(provide_java(Machine.here()))
    except LocalClusterError as error:
        report(f"error: {error}")
        return 1
    return 0


def _homes(machine: Machine) -> Iterator[Path]:
    named = machine.variables.get("JAVA_HOME")
    if named:
        yield Path(named)
    found = shutil.which("java", path=machine.variables.get("PATH"))
    if found:
        yield Path(found).resolve().parent.parent
    yield from sorted(machine.installed.glob("*"))


def _version_of(home: Path) -> int:
    """The first number of its version, 8 for 1.8; 0 where Java does not run."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASKING_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search((answer.stderr + answer.stdout).decode(errors="replace"))
    return int(found[1]) if found and answer.returncode == 0 else 0


def _install(apt_get: str, machine: Machine) -> None:
    environment = {**machine.variables, "DEBIAN_FRONTEND": "noninteractive"}
    commands = [("update",), *(("install", "-y", "--no-install-recommends", p) for p in PACKAGES)]
    for command in commands:
        ended = subprocess.run(
            [apt_get, "-qq", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if find_java(machine) is not None:
            return
    report(ended.stderr.decode(errors="replace").rstrip())


if __name__ == "__main__":
    sys.exit(main())
