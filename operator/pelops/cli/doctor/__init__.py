"""Observation and output of `pelops doctor`."""
