"""The reconciler of StreamConsumerGroups."""
