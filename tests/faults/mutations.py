"""Operators with one rule taken out, to see that the matching fault finds out."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.operators import ROOT

OPERATOR = ROOT / "operator"


class MutationFailed(Exception):
    """The text that a mutation replaces is not there as often as it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One exact text in one file of the operator."""

    file: str  # below operator/pelops
    old: str
    new: str
    count: int = 1  # how often it occurs


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A rule that is taken out, and the fault that makes it matter."""

    rule: str
    fault: str
    replacements: tuple[Replacement, ...]


RECOVER = "redis_streams/lua/recover_entries.lua"
RECOVERY = "redis_streams/recovery/stuck_entries.py"
ATTEMPTS = "policy/recovery/attempts.py"
LIVENESS = "policy/recovery/liveness.py"

MOVE_BY_OWNER = (
    Replacement(
        file=RECOVER, old="    if delivered >= cutoff_ms then\n", new="    if false then\n"
    ),
)

FAILED_PHASE = (
    Replacement(
        file=LIVENESS,
        old="    return is_final and are_all_terminated(pod)\n",
        new="    return pod.phase in FINAL_PHASES\n",
    ),
)

NO_LIVE_GET = (
    Replacement(
        file="controller/recovery/pod_evidence.py",
        old="observed = await observe_pods(self._api, question.namespace, sorted(wanted))",
        new="observed = ObservedPods()",
    ),
)

# The script acknowledges, and answers with the bodies; then they are written, one after the other.
ACK_FIRST = (
    Replacement(
        file=RECOVER,
        old="  local copy = redis.pcall('XADD', target, '*', unpack(fields))\n",
        new="  local copy = '-'\n"
        "  taken[#taken + 1] = { entry[1], one[3] .. ' ' .. one[4] .. ' ' .. text(entry[4])"
        " .. ' ' .. text(entry[3]), fields }\n",
    ),
    Replacement(
        file=RECOVER,
        old="local acked, event, copied = {}, {}, 0\n",
        new="local acked, event, copied = {}, {}, 0\nlocal taken = {}\n",
    ),
    Replacement(file=RECOVER, old="  record('requeued', event, reason, target)\n", new=""),
    Replacement(
        file=RECOVER, old=", answered, co_failed }\n", new=", answered, co_failed, taken }\n"
    ),
    Replacement(
        file=RECOVERY,
        old="            [_recover_call(context, order, cutoff, start=start)] * depth\n        )\n",
        new="            [_recover_call(context, order, cutoff, start=start)] * depth\n        )\n"
        "        answers = [await _copy(server, context, order, one) for one in answers]\n",
    ),
    Replacement(
        file=RECOVERY,
        old="    return _read_recovered(context, order, answer)\n",
        new="    answer = await _copy(server, context, order, answer)\n"
        "    return _read_recovered(context, order, answer)\n",
    ),
    Replacement(
        file=RECOVERY,
        old="def _recover_call(",
        new="""async def _copy(server, context, order, answer):
    if isinstance(answer, PelopsError) or answer[0] != b"done":
        return answer
    *reported, taken = answer
    head = ("kind", "requeued", "stream", context.source, "consumer", encode_name(order.owner))
    head += ("reason", order.reason, "trigger", context.trigger, "actor", context.actor)
    for entry_id, text, fields in taken:
        copied = await _add(server, context.target, fields)
        await _add(server, context.keys.ledger, (*head, entry_id, copied + b" " + text))
        reported[5] = copied
    return reported


async def _add(server, key, fields):
    return await server.execute("XADD", key, "*", *fields, key=key, writes=True)


def _recover_call(""",
    ),
)

NO_SKEW = (
    Replacement(
        file=LIVENESS,
        old="server_time=server_time, skew=skew, master_since=master_since, container=container",
        new="server_time=server_time, skew=timedelta(), master_since=master_since, "
        "container=container",
    ),
    Replacement(
        file=LIVENESS,
        old="start = min(container.started, "
        "evidence.first_seen.get(container.name, container.started))",
        new="start = container.started",
    ),
    Replacement(
        file=LIVENESS,
        old="    if candidate.stamp > moment.server_time + moment.skew:\n",
        new="    if False:\n",
    ),
)

COUNT_ATTEMPTS = (
    Replacement(
        file=ATTEMPTS,
        old="    if is_isolated and attempts > most and failures >= _needed(crash.death, rules):\n",
        new="    if attempts > rules.max_retries:\n",
    ),
    Replacement(
        file=ATTEMPTS,
        old="    staged = _is_counted(suspect, rules) and not runs_isolated\n",
        new="    staged = False\n",
    ),
)

RECREATE_AT_LAST = (
    Replacement(
        file="redis_streams/lua/provision_group.lua",
        old="  if seen.lowest ~= '' then\n    position = ",
        new="  if false then\n    position = ",
    ),
)

FORGET_LOSS = (
    Replacement(
        file="policy/group/losses.py",
        old="    if before is None or was_made_since(before, stream):\n        return None\n",
        new="    return None\n",
    ),
)

KEEP_LETTERS = (
    Replacement(
        file="redis_streams/lua/move_dead_letters.lua",
        old="  redis.call('XDEL', source, unpack(moved))\n",
        new="",
    ),
)

MUTATIONS: Mapping[str, Mutation] = {
    "move-by-owner": Mutation(
        rule="an entry moves by its cut, not by its owner",
        fault="restart",
        replacements=MOVE_BY_OWNER,
    ),
    "failed-phase": Mutation(
        rule="a phase alone proves nothing", fault="phase", replacements=FAILED_PHASE
    ),
    "no-live-get": Mutation(
        rule="a pod is asked about live before its cut", fault="names", replacements=NO_LIVE_GET
    ),
    "ack-first": Mutation(
        rule="the copy precedes the acknowledgement", fault="midway", replacements=ACK_FIRST
    ),
    "no-skew": Mutation(
        rule="the skew of a node's clock is allowed for", fault="skew", replacements=NO_SKEW
    ),
    "count-attempts": Mutation(
        rule="attempts are counted as failed, not counted",
        fault="poison",
        replacements=COUNT_ATTEMPTS,
    ),
    "recreate-at-last": Mutation(
        rule="a group is made again before its lowest pending entry",
        fault="owed",
        replacements=RECREATE_AT_LAST,
    ),
    "forget-loss": Mutation(
        rule="what is gone with a stream is reported", fault="vanish", replacements=FORGET_LOSS
    ),
    "keep-letters": Mutation(
        rule="a dead letter is deleted when it is moved",
        fault="redrive",
        replacements=KEEP_LETTERS,
    ),
}


def build_mutant(
    name: str, directory: Path, mutations: Mapping[str, Mutation] | None = None
) -> Path:
    """A copy of the operator with the mutation made, as a directory for PYTHONPATH.

    Raises MutationFailed when its text is not found exactly as often as said.
    """
    copy = directory / f"operator-{name}"
    shutil.copytree(OPERATOR, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for replacement in (mutations or MUTATIONS)[name].replacements:
        _replace(copy / "pelops" / replacement.file, replacement, name)
    return copy


def _replace(file: Path, replacement: Replacement, name: str) -> None:
    text = file.read_text() if file.exists() else ""
    found = text.count(replacement.old)
    if found != replacement.count:
        raise MutationFailed(
            f"{name}: {replacement.file} has {found} times, not {replacement.count} times:\n"
            f"{replacement.old}"
        )
    file.write_text(text.replace(replacement.old, replacement.new))
