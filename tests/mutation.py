"""Seeded faults: each breaks one rule of a decision or a script, and some test must fail.

    python -m tests.mutation [--only NAME ...] [--list]

A fault that no test finds (`SURVIVED`) shows that nothing protects its rule: add the test. The
programs of `tests.faults` and `tests.history` do the same for whole processes (`--mutation`).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TIMEOUT_S: Final = 120
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)
_INVALID: Final = "Error compiling script"  # a fault is a wrong rule, not a wrong program

ATTEMPTS: Final = "policy/recovery/attempts.py"
LIVENESS: Final = "policy/recovery/liveness.py"
AUTOSCALER: Final = "policy/scaling/autoscaler.py"
CONDITIONS: Final = "policy/status/conditions.py"
LUA: Final = "redis_streams/lua"


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that is broken, by another text in one file."""

    name: str  # what is wrong
    file: str  # below operator/pelops
    old: str  # occurs once
    new: str
    tests: str  # files below tests that should find it; the fast ones first


FAULTS: Final = (
    # Recovery
    Fault(
        "an entry that failed beside others becomes a dead letter",
        ATTEMPTS,
        "if is_isolated and attempts > most",
        "if attempts > most",
        "unit/test_attempts.py",
    ),
    Fault(
        "one failure is enough for an entry of a killed process",
        ATTEMPTS,
        "return 2 if death is Death.KILLED and rules.runs_isolated_first else 1",
        "return 1",
        "unit/test_attempts.py",
    ),
    Fault(
        "a cutoff ignores that the clock of a node is ahead",
        LIVENESS,
        "ended, at = container.last_finished, start - skew",
        "ended, at = container.last_finished, start",
        "unit/test_liveness.py",
    ),
    Fault(
        "a node need not be Ready for long to prove the end of a deleted pod",
        LIVENESS,
        "return node.is_ready is True and is_steady",
        "return node.is_ready is True",
        "unit/test_liveness.py",
    ),
    Fault(
        "a consumer matches the pod with the shortest name",
        "policy/recovery/owners.py",
        "key=lambda span: span[0] - span[1]",
        "key=lambda span: span[1] - span[0]",
        "unit/test_owner_matching.py",
    ),
    Fault(
        "entries of live pods have the timeout of unmatched consumers",
        "policy/recovery/processing_timeouts.py",
        "return self.unknown if is_unknown else self.alive",
        "return self.unknown",
        "unit/test_recovery_rules.py",
    ),
    # Positions, losses, retention
    Fault(
        "entries of a worker that ended in order count as dropped",
        "policy/group/losses.py",
        "if name not in names and not has_left(name)",
        "if name not in names",
        "unit/test_dropped.py",
    ),
    Fault(
        "of two resources on a stream, the smaller limit trims",
        "policy/group/retention.py",
        "return max(known) if",
        "return min(known) if",
        "unit/test_retention.py",
    ),
    Fault(
        "a group that was created again counts as gone back",
        "policy/group/position.py",
        "if before is None or group is None or was_made_since(before, stream):",
        "if before is None or group is None:",
        "unit/test_loss.py",
    ),
    # Scaling
    Fault(
        "idle workers make a worker look slow",
        "policy/scaling/capacity.py",
        "workers = min(interval.busy_most, interval.ready)",
        "workers = interval.ready",
        "unit/test_meter.py",
    ),
    Fault(
        "entries count as finished while the lag is unknown",
        "policy/scaling/meter.py",
        "is_known = arrived is not None and last.is_exact and backlog.is_exact",
        "is_known = arrived is not None",
        "unit/test_meter.py",
    ),
    Fault(
        "workers are removed while the lag is unknown",
        AUTOSCALER,
        "wanted = max(wanted, current, demand.in_doubt)",
        "wanted = max(wanted, demand.in_doubt)",
        "unit/test_scaling.py",
    ),
    Fault(
        "the last worker is removed without a cool-down",
        AUTOSCALER,
        "if since is None or now - since < cooldown:",
        "if since is None:",
        "unit/test_scaling.py",
    ),
    Fault(
        "the stabilization window does not delay a scale-down",
        "policy/scaling/behavior.py",
        "highest = max([newest, *(one.replicas for one in known if one.at > down_since)])",
        "highest = newest",
        "unit/test_behavior.py",
    ),
    Fault(
        "Pelops fights for the replicas until the third foreign write",
        "policy/scaling/replica_writes.py",
        "if len(self.foreign) > 1:",
        "if len(self.foreign) > 2:",
        "unit/test_scaling_over_time.py",
    ),
    Fault(
        "the youngest of several resources decides the replicas",
        "policy/scaling/sharing.py",
        "leader = min((one for",
        "leader = max((one for",
        "unit/test_sharing.py",
    ),
    Fault(
        "the busy pod with the highest ordinal is deleted",
        "policy/scaling/victims.py",
        "_ordinal(one.pod) - first + 1 for one",
        "_ordinal(one.pod) - first for one",
        "unit/test_victims.py",
    ),
    # Conditions
    Fault(
        "a suspended resource without a group is Ready",
        CONDITIONS,
        "return is_scaling and condition.reason in _UNSCALED_AND_WELL",
        "return condition.reason in _UNSCALED_AND_WELL",
        "unit/test_conditions.py",
    ),
    Fault(
        "one other group may receive the copies of stuck entries",
        CONDITIONS,
        "or stream.groups <= 1:",
        "or stream.groups <= 2:",
        "unit/test_conditions.py",
    ),
    Fault(
        "a replica that does not decide reports ScalingActive",
        CONDITIONS,
        "        if previous is not None:\n",
        "        if False:\n",
        "unit/test_conditions.py",
    ),
    Fault(
        "a group is ready without its dead-letter stream",
        "policy/status/facts.py",
        "return self.stream.group is not None if self.is_dry else self.stream.is_provisioned",
        "return self.stream.group is not None",
        "unit/test_conditions.py",
    ),
    Fault(
        "a change of the spec does not restart the progress deadline",
        "policy/status/health.py",
        'if condition.get("observedGeneration") == generation and condition',
        "if condition",
        "unit/test_health.py",
    ),
    # Redrive
    Fault(
        "a redrive takes a dead letter of the moment at which its selection ends",
        "policy/redrive/selection.py",
        "letter.dead_lettered < self.before",
        "letter.dead_lettered <= self.before",
        "unit/test_redrive_selection.py",
    ),
    Fault(
        "a redrive takes what its plan leaves",
        "policy/redrive/selection.py",
        " for one in letters if one.action is PlannedLetterAction.REDRIVE)",
        " for one in letters)",
        "unit/test_redrive_selection.py",
    ),
    Fault(
        "a redrive stops when as many entries fail again as it allows",
        "policy/redrive/progress.py",
        "exceeds = 100 * outcomes.failed_again > limit",
        "exceeds = 100 * outcomes.failed_again >= limit",
        "unit/test_redrive_selection.py",
    ),
    Fault(
        "a redrive does not wait for its trial",
        "policy/redrive/progress.py",
        " and last_moved is not None and now >= last_moved + trial.wait",
        "",
        "unit/test_redrive_selection.py",
    ),
    Fault(
        "after a pause, a redrive moves more than its rate in one second",
        f"{LUA}/move_dead_letters.lua",
        "tokens = math.min(math.max(tokens, kept and 0 or 1000), 1000 * math.max(1, rate))",
        "tokens = math.max(tokens, kept and 0 or 1000)",
        "integration/test_redis_redrive.py",
    ),
    # Scripts
    Fault(
        "an entry that was delivered at the cutoff is moved",
        f"{LUA}/recover_entries.lua",
        "if delivered >= cutoff_ms then",
        "if delivered > cutoff_ms then",
        "integration/test_redis_recovery.py",
    ),
    Fault(
        "the failures of an entry end with a planned end of its worker",
        f"{LUA}/recover_entries.lua",
        "    if one[6] then\n",
        "    if false then\n",
        "integration/test_redis_settling.py",
    ),
    Fault(
        "two replicas release a retry batch each",
        f"{LUA}/include/retry_batch.lua",
        "return present ~= retry_batch and",
        "return false and",
        "integration/test_redis_recovery_refusals.py",
    ),
    Fault(
        "a copy starts without the isolated failures of its entry",
        f"{LUA}/settle_suspects.lua",
        "retries .. ' ' .. alone .. ' 0')",
        "retries .. ' 0 0')",
        "integration/test_redis_settling.py",
    ),
    Fault(
        "a redrive moves the dead letter of another group",
        f"{LUA}/move_dead_letters.lua",
        "elseif not named or not names_group(named, stream, group, own_retry) then",
        "elseif not named then",
        "integration/test_redis_redrive.py",
    ),
    Fault(
        "a redrive skips dead letters that a slower replica has not read",
        f"{LUA}/move_dead_letters.lua",
        "if comes_before(cursor, after) then",
        "if false then",
        "integration/test_redis_redrive.py",
    ),
    Fault(
        "a change of the master is not recorded",
        f"{LUA}/open_scan.lua",
        "if replid and replid ~= held[3] then",
        "if replid and not held[3] then",
        "integration/test_redis_scanning.py",
    ),
    Fault(
        "the failures of a copy are forgotten before it is delivered",
        f"{LUA}/finish_scan.lua",
        "      if waits then\n",
        "      if false then\n",
        "integration/test_redis_scanning.py",
    ),
    Fault(
        "an entry is offered twice for one delivery",
        f"{LUA}/offer_entries.lua",
        "elseif is_offered(id, at - entry[3]) then",
        "elseif false then",
        "integration/test_redis_settling.py",
    ),
    Fault(
        "the youngest of two resources acts on a group",
        f"{LUA}/provision_group.lua",
        "return theirs_ms < created_ms",
        "return theirs_ms > created_ms",
        "integration/test_redis_ownership.py",
    ),
    Fault(
        "pending entries are trimmed",
        f"{LUA}/trim_stream.lua",
        "needs = lowest and first_of(needs, lowest[1]) or needs",
        "needs = needs",
        "integration/test_redis_retention.py",
    ),
    Fault(
        "records expire before an audit has archived them",
        f"{LUA}/expire_dead_letters.lua",
        "if comes_before(id, first) and comes_before(oldest, id) then",
        "if false then",
        "integration/test_redis_dead_letter_expiry.py integration/test_redis_audits.py",
    ),
    Fault(
        "a consumer that a worker removed itself counts as dropped",
        f"{LUA}/record_dropped.lua",
        "removed[fields[i + 1]] = true",
        "removed[''] = true",
        "integration/test_redis_sticky.py",
    ),
)


class CannotRun(Exception):
    """A fault cannot be seeded, or its tests fail without it."""


class Copy:
    """A copy of the repository in which one fault after the other is seeded."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._passed = directory, set[str]()
        for name in _list_files():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self._pelops = directory / "operator" / "pelops"
        imported = self._run("-c", "import pelops; print(pelops.__path__[0])").stdout.strip()
        if imported != str(self._pelops):
            raise CannotRun(f"pelops is imported from {imported}, not from the copy")

    def find(self, fault: Fault) -> str:
        """Return the first test that fails with the fault; empty if none does.

        Tests that exceed the time count, because they pass in time without the fault.
        """
        self.require_pass(fault.tests)
        path = self._pelops / fault.file
        correct = path.read_text()
        path.write_text(correct.replace(fault.old, fault.new))
        try:
            answer = self._test(fault.tests)
        except subprocess.TimeoutExpired:
            return f"no end within {TIMEOUT_S} s"
        finally:
            path.write_text(correct)
        if _INVALID in answer.stdout:
            raise CannotRun(f"{fault.name}: the script is invalid\n{answer.stdout}")
        failed = _FAILED.search(answer.stdout)
        if answer.returncode and failed is None:
            raise CannotRun(f"{fault.name}: no test ran\n{answer.stdout}{answer.stderr}")
        return failed[1] if failed else ""

    def check(self, fault: Fault) -> None:
        """Raise CannotRun unless the text that the fault replaces occurs once."""
        count = (self._pelops / fault.file).read_text().count(fault.old)
        if count != 1:
            raise CannotRun(f"{fault.name}: {fault.file} has {count} times: {fault.old}")

    def require_pass(self, tests: str) -> None:
        """Raise CannotRun unless these tests pass in time without a fault."""
        if tests in self._passed:
            return
        answer = self._test(tests)
        if answer.returncode:
            raise CannotRun(f"without a fault, tests fail\n{answer.stdout}{answer.stderr}")
        self._passed.add(tests)

    def _test(self, tests: str) -> subprocess.CompletedProcess[str]:
        files = [f"tests/{name}" for name in tests.split()]
        options = ("-x", "-q", "-p", "no:cacheprovider", "-n", "2", "-m", "not full")
        return self._run("-m", "pytest", *options, *files)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self._directory,
            env=os.environ | {"PYTHONPATH": str(self._directory / "operator")},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


def _list_files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if (ROOT / name).is_file()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Seed the faults, print which test finds each, and return 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="faults with this in their name")
    parser.add_argument("--list", action="store_true", help="list the faults and seed none")
    options = parser.parse_args(arguments)
    chosen = [one for one in FAULTS if any(name in one.name for name in options.only or [""])]
    if options.list:
        for fault in chosen:
            print(f"{fault.name}  ({fault.file})")
        return 0
    survived = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = Copy(Path(directory).resolve())
        for fault in chosen:
            copy.check(fault)
        for fault in chosen:
            found_by = copy.find(fault)
            survived += not found_by
            text = f"found   {fault.name}  by {found_by}" if found_by else f"SURVIVED {fault.name}"
            print(text, flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} faults are found")
    return 1 if survived else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CannotRun, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
