"""The worker's door to Redis: with `pelops.redis_streams`, all that imports `redis`."""
