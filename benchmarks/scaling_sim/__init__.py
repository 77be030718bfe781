"""Autoscalers and traffic in virtual time: a world of entries and workers, and who scales it."""
