"""Decisions about stuck entries: who has died, what is stuck, and what becomes of it."""
