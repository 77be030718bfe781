"""Every mutation of the operator and of the SDK can still be made: the rule is where it was."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dis import get_instructions
from pathlib import Path
from types import CodeType

import pytest

from tests.faults.faults import FAULTS
from tests.faults.mutations import (
    MUTATIONS,
    OPERATOR,
    Mutation,
    MutationFailed,
    Replacement,
    build_mutant,
)
from tests.faults.phases import plan_phases
from tests.history import mutations as of_workers

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("mutations", "name"),
    [
        pytest.param(mutations, name, id=name)
        for mutations in (MUTATIONS, of_workers.MUTATIONS)
        for name in mutations
    ],
)
def test_a_mutation_changes_what_it_says_and_leaves_programs(
    mutations: Mapping[str, Mutation], name: str, tmp_path: Path
) -> None:
    mutant = build_mutant(name, tmp_path, mutations)
    changed = {
        str(file.relative_to(mutant / "pelops"))
        for file in mutant.rglob("*.*")
        if file.read_bytes() != (OPERATOR / file.relative_to(mutant)).read_bytes()
    }
    assert changed == {one.file for one in mutations[name].replacements}
    for file in changed:
        if file.endswith(".py"):
            program = compile((mutant / "pelops" / file).read_text(), file, "exec")
            assert not _find_unknown(program, _find_defined(program))


def _find_defined(program: CodeType) -> set[str]:
    stored = {one.argval for one in get_instructions(program) if one.opname == "STORE_NAME"}
    return stored | set(dir(builtins)) | {"__name__"}


def _find_unknown(program: CodeType, defined: set[str]) -> set[str]:
    """Names that a function takes for the module's, and the module does not have."""
    used = {one.argval for one in get_instructions(program) if one.opname == "LOAD_GLOBAL"}
    inner = (one for one in program.co_consts if isinstance(one, CodeType))
    return (used - defined).union(*(_find_unknown(one, defined) for one in inner))


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_fault_that_shows_a_mutation_is_one_that_can_be_run(name: str) -> None:
    assert plan_phases(MUTATIONS[name].fault, seconds=40, seed=1)


def test_the_faults_that_show_mutations_of_workers_exist() -> None:
    assert {one.fault for one in of_workers.MUTATIONS.values()} <= FAULTS.keys()


@pytest.mark.parametrize(("old", "count"), [("no such text\n", 1), ("SECOND", 1)])
def test_a_text_that_is_not_there_as_often_as_said_is_reported(
    old: str, count: int, tmp_path: Path
) -> None:
    wrong = Replacement(file="policy/recovery/liveness.py", old=old, new="", count=count)
    mutation = Mutation(rule="any", fault="restart", replacements=(wrong,))
    with pytest.raises(MutationFailed, match=r"policy/recovery/liveness\.py"):
        build_mutant("wrong", tmp_path, {"wrong": mutation})
