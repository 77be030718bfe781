"""Connections to Redis: addresses, TLS, Sentinel, Cluster and replicas; the state of streams."""
