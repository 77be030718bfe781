"""Answers questions about entries, by reads limited in number and bytes. Writes nothing."""
