"""Moves a group's dead letters for a StreamRedrive, and observes the outcomes."""
