"""Reads and writes of a consumer group and its keys."""
