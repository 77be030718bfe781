"""Decisions about the number of workers."""
