"""Scales workers on the backlog of their groups."""
