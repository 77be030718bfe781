"""What follows from what Redis shows of an entry, by the rules of recovery."""
