"""The operator process: watches, reconciles, serves."""
