"""Answers questions of people about entries, from what this replica knows."""
