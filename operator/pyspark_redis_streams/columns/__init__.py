"""Entries as Arrow columns, and rows as entries."""
