"""Observation of Redis for `pelops doctor`. Reads only."""
