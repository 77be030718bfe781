"""Scans for stuck entries and recovers them."""
