"""The health scripts for Argo CD, run by the Lua 5.1 that it has, without its libraries.

The cases in files have the format of Argo CD's own tests, so that they can be contributed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

from pelops.policy.status.reasons import UNDER_WAY, Reason
from tests.gitops_cases import (
    ARGOCD,
    CUSTOMIZATIONS,
    KINDS,
    complete,
    list_cases,
    messages,
    render_files,
)
from tests.kstatus import compute
from tests.unit.test_health import LATE, seen

# Argo CD offers base, table, package and a part of os.
ABSENT = ("string", "math", "io", "debug", "coroutine", "python")
# As kstatus has it, which Flux goes by, unless the resource is suspended.
OF_KSTATUS = {
    "Current": "Healthy",
    "InProgress": "Progressing",
    "Failed": "Degraded",
    "Terminating": "Progressing",
}


def judge(kind: str, thing: dict[str, Any]) -> tuple[str, str]:
    """Status and message by the script of a kind."""
    lua = LuaRuntime(register_eval=False, unpack_returned_tuples=True)
    for library in ABSENT:
        lua.globals()[library] = None
    lua.globals().obj = _to_lua(lua, thing)
    found = lua.execute((CUSTOMIZATIONS / kind / "health.lua").read_text())
    return found["status"], found["message"]


def _to_lua(lua: LuaRuntime, value: Any) -> Any:
    if isinstance(value, dict):
        return lua.table_from({name: _to_lua(lua, one) for name, one in value.items()})
    if isinstance(value, list):
        return lua.table_from([_to_lua(lua, one) for one in value])
    return str(value) if isinstance(value, str) else value


def filed() -> Iterator[tuple[Path, str, str]]:
    for kind in KINDS:
        listed = yaml.safe_load((CUSTOMIZATIONS / kind / "health_test.yaml").read_text())["tests"]
        for one in listed:
            expected = one["healthStatus"]
            path = CUSTOMIZATIONS / kind / one["inputPath"]
            yield path, expected["status"], expected["message"]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [pytest.param(*one, id=f"{one[0].parts[-3]}-{one[0].stem}") for one in filed()],
)
def test_a_filed_case_is_judged_as_it_says(path: Path, status: str, message: str) -> None:
    thing = yaml.safe_load(path.read_text())
    assert judge(path.parts[-3], thing) == (status, message)


def test_the_files_are_up_to_date_and_none_is_left_over() -> None:
    files = render_files()
    for path, text in files.items():
        assert path.read_text() == text, "python -m tests.gitops_cases --write"
    written = {path for path in ARGOCD.rglob("*") if path.is_file()}
    assert written - files.keys() == {CUSTOMIZATIONS / KINDS[0] / "health.lua"}


def test_the_config_map_has_the_script_of_each_kind() -> None:
    data = yaml.safe_load((ARGOCD / "argocd-cm.yaml").read_text())["data"]
    for kind in KINDS:
        script = (CUSTOMIZATIONS / kind / "health.lua").read_text()
        assert data[f"resource.customizations.health.pelops.dev_{kind}"] == script
    assert len(data) == len(KINDS)


GOOD = {Reason.READY, Reason.SCHEDULED, Reason.COMPLETED, Reason.SUSPENDED}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reason", Reason)
def test_argo_cd_and_flux_agree_about_every_reason(kind: str, reason: Reason) -> None:
    texts = messages(kind)
    text = texts.get(reason, "m")
    early = seen(reason, message=text)
    late = seen(reason, before=early, now=LATE, message=text)
    for thing in (early, late):
        status, message = judge(kind, complete(kind, thing))
        assert status == OF_KSTATUS[compute(thing)]
        assert text in message
    # What waiting helps with is in progress first; a person has to look at it after the deadline.
    is_good = reason in GOOD | UNDER_WAY
    assert (judge(kind, complete(kind, late))[0] == "Degraded") is not is_good


def test_a_resource_without_a_status_is_in_progress() -> None:
    for kind in KINDS:
        thing = complete(kind, {"metadata": {"generation": 1}})
        assert judge(kind, thing) == ("Progressing", "Waiting for the Pelops operator")


def test_each_kind_has_cases_of_every_health() -> None:
    for kind in KINDS:
        found = {one.status for one in list_cases(kind)}
        assert found == {"Healthy", "Suspended", "Progressing", "Degraded"}
