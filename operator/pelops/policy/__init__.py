"""Decisions: pure functions of facts and `now`, each answering with a reason and a message."""
