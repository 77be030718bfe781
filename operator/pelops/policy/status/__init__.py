"""Conditions, reasons and messages that users read."""
