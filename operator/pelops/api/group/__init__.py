"""The kind `StreamConsumerGroup`."""
