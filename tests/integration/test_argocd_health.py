"""The health script for Argo CD, run by the Lua 5.1 of a Redis: Argo CD's own has no libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_cluster.redis_servers import RedisServers
from pelops.policy.status.reasons import NEEDS_CHANGE, Reason
from tests.builders import NOW
from tests.unit.test_health import LATE, seen

SCRIPT = (Path(__file__).parents[2] / "manifests" / "argocd" / "health.lua").read_text()
# Argo CD offers base, table and package alone.
SANDBOX = """
local obj = cjson.decode(ARGV[1])
local cjson, string, math, redis, bit, struct, cmsgpack = nil, nil, nil, nil, nil, nil, nil
local found = (function() {script} end)()
return {{ found.status, found.message or '' }}
"""

LATER: dict[str, Any] = seen(Reason.CRASH_LOOPING, before=seen(Reason.CRASH_LOOPING), now=LATE)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "ready": (seen(Reason.READY), "Healthy"),
    "without a status": ({"metadata": {"generation": 1}}, "Progressing"),
    "just created": (
        {"metadata": {"generation": 1}, "status": {"observedGeneration": -1}},
        "Progressing",
    ),
    "of an older generation": (
        {**seen(Reason.READY), "metadata": {"generation": 2}},
        "Progressing",
    ),
    "being deleted": (
        {
            **seen(Reason.READY),
            "metadata": {"generation": 1, "deletionTimestamp": "2026-05-04T03:02:01Z"},
        },
        "Progressing",
    ),
    "suspended": ({**seen(Reason.READY), "spec": {"suspend": True}}, "Suspended"),
    "not ready for too long": (LATER, "Degraded"),
    **{reason: (seen(reason, now=NOW), "Degraded") for reason in sorted(NEEDS_CHANGE)},
    **{
        reason: (seen(reason, now=NOW), "Progressing")
        for reason in (Reason.CRASH_LOOPING, Reason.REDIS_UNREACHABLE, Reason.CREATING)
    },
}


@pytest.mark.parametrize("case", CASES)
def test_argo_cd_sees(case: str, redis_86: RedisServers) -> None:
    thing, expected = CASES[case]
    text = json.dumps({"spec": {}, **thing})
    answer = redis_86.cli("EVAL", SANDBOX.format(script=SCRIPT), "0", text)
    assert answer.splitlines()[0] == expected
