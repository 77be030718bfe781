"""Answers to questions about entries: reads bounded in number and bytes, and no write."""
