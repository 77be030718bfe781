"""Connections to Redis: topology, TLS, Sentinel, Cluster, errors and scripts."""
