"""Decisions about dead letters: which of them failed alike, and what to do with them."""
