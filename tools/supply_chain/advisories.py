"""Looks for known vulnerabilities of the pinned packages:
`python -m tools.supply_chain.advisories PIP_AUDIT [--required]`.

pip-audit asks PyPI, and where that answers nothing OSV. A registry between that knows no advisories
says that it does not know the packages, which pip-audit takes for a success: here it counts as no
answer. Exit code 0 when every package was looked up and none is affected; 1 when one is, or when
only some could be looked up. Where no source answers, the reason is printed: exit code 0, or 2 with
--required.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FILES: Final = ("dev", "build", "tools")  # dev.txt has all that operator.txt and pipeline.txt have
_SOURCES: Final = ("pypi", "osv")
_ASKING_S: Final = 600.0
_REASON_LENGTH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one source said of one file."""

    known: int = 0  # packages that were looked up
    unknown: tuple[str, ...] = ()  # packages of which the source says nothing
    affected: tuple[str, ...] = ()  # a line for each vulnerability
    reason: str | None = None  # why there is no answer

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Answer:
        """What pip-audit printed as JSON."""
        packages = document["dependencies"]
        unknown = tuple(one["name"] for one in packages if "skip_reason" in one)
        known = len(packages) - len(unknown)
        reasons = {one["skip_reason"] for one in packages if "skip_reason" in one}
        return cls(
            known=known,
            unknown=unknown,
            affected=tuple(
                f"{one['name']} {one['version']}: {found['id']}, fixed in"
                f" {', '.join(found['fix_versions']) or 'no version'}"
                for one in packages
                for found in one.get("vulns", ())
            ),
            reason=None if known else min(reasons, default="no package was named"),
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Look up all; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.supply_chain.advisories", description=__doc__
    )
    parser.add_argument("pip_audit", help="the program")
    parser.add_argument("--required", action="store_true", help="a source must answer")
    given = parser.parse_args(argv)
    codes = [_report(name, _ask(given.pip_audit, name), required=given.required) for name in FILES]
    return max(codes)


def _ask(program: str, name: str) -> Answer:
    """The answer of the first source that gives one, else why the last one does not."""
    answer = Answer(reason="no source was asked")
    for source in _SOURCES:
        answer = _ask_source(program, name, source)
        if answer.reason is None:
            return answer
    return answer


def _ask_source(program: str, name: str, source: str) -> Answer:
    file = ROOT / "requirements" / f"{name}.txt"
    command = [program, "--requirement", str(file), "--require-hashes", "--disable-pip"]
    command += ["--vulnerability-service", source, "--format", "json", "--progress-spinner", "off"]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_ASKING_S
        )
        return Answer.parse(json.loads(ended.stdout))
    except subprocess.TimeoutExpired:
        return Answer(reason=f"{source} did not answer within {_ASKING_S:.0f} s")
    except ValueError:
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        return Answer(reason=f"{source}: {lines[-1][:_REASON_LENGTH]}")


def _report(name: str, answer: Answer, *, required: bool) -> int:
    file = f"requirements/{name}.txt"
    if answer.reason is not None:
        print(f"{file}: skipped: no source of advisories answers: {answer.reason}", file=sys.stderr)
        return 2 if required else 0
    for line in answer.affected:
        print(f"{file}: {line}", file=sys.stderr)
    if answer.unknown:
        print(f"{file}: not looked up: {', '.join(answer.unknown)}", file=sys.stderr)
    print(f"{file}: {answer.known} packages looked up, {len(answer.affected)} vulnerabilities")
    return 1 if answer.affected or answer.unknown else 0


if __name__ == "__main__":
    sys.exit(main())
