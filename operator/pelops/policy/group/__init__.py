"""Decisions about a consumer group in Redis: its provisioning, position, losses and retention."""
