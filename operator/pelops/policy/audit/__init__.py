"""Decisions about audits: scope, the status of each entry, and verdicts."""
