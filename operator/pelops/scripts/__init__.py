"""The Lua scripts of the operator and of its workers: their declarations, and calls by name."""
