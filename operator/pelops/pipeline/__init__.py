"""Archive, snapshot, reconcile, report: audits of the outcome of every entry, on Spark."""
