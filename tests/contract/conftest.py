"""What every contract test begins with."""

import pytest


@pytest.fixture(autouse=True)
def patience(patient_client: None) -> None:
    """For every test here."""
