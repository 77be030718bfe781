"""Waiting for the next entry of idle streams."""
