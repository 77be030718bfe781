"""Streaming reads: positions, offsets and progress."""
