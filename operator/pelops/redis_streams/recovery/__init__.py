"""The scripts of a scan, and what they answer."""
