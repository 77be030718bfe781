"""Ranges of entries, cut into tasks and read page by page."""
