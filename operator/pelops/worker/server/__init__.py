"""The worker's adapter for Redis: with `pelops.redis_streams`, all that imports `redis`."""
