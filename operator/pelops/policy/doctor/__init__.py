"""Checks of `pelops doctor`: verdicts over what was observed."""
