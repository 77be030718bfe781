"""The views of a read: entries, and rows about streams, groups, consumers and pending entries."""
