"""Every seeded fault can still be seeded: the text that it replaces is where it was."""

from __future__ import annotations

import pytest

from tests.faults.mutations import MUTATIONS, OPERATOR, Replacement
from tests.history import mutations as of_workers
from tests.mutation import FAULTS, ROOT, Fault

REPLACEMENTS = {
    f"{name}: {one.file}": one
    for name, mutation in {**MUTATIONS, **of_workers.MUTATIONS}.items()
    for one in mutation.replacements
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_seeded_fault_replaces_one_text_and_names_existing_tests(fault: Fault) -> None:
    assert (OPERATOR / "pelops" / fault.file).read_text().count(fault.old) == 1
    assert all((ROOT / "tests" / name).exists() for name in fault.tests.split())


@pytest.mark.parametrize("replacement", REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_a_mutation_of_a_fault_run_finds_its_text(replacement: Replacement) -> None:
    text = (OPERATOR / "pelops" / replacement.file).read_text()
    assert text.count(replacement.old) == replacement.count
