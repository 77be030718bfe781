"""Calls of the scripts of a scan."""
