"""What every kind shares: watches, cache, queues, membership, events."""
