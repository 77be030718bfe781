"""Every mutation of the worker SDK can still be made: the rule stands where it is taken out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.faults import FAULTS
from tests.faults.mutations import OPERATOR, build_mutant
from tests.history.mutations import MUTATIONS

pytestmark = pytest.mark.full


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_changes_what_it_says_and_leaves_programs(name: str, tmp_path: Path) -> None:
    mutant = build_mutant(name, tmp_path, MUTATIONS)
    changed = {
        str(file.relative_to(mutant / "pelops"))
        for file in mutant.rglob("*.*")
        if file.read_bytes() != (OPERATOR / file.relative_to(mutant)).read_bytes()
    }
    assert changed == {one.file for one in MUTATIONS[name].replacements}
    for file in changed:
        if file.endswith(".py"):
            compile((mutant / "pelops" / file).read_text(), file, "exec")
    assert MUTATIONS[name].fault in FAULTS
