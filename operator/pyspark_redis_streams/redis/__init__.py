"""Connections to Redis: addresses, TLS, Sentinel, Cluster and replicas."""
