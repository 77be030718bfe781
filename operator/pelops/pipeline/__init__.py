"""Archive, snapshot, reconcile, report: what became of every entry, on Spark."""
