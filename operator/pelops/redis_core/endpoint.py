"""Addresses and URLs, for programs that use `redis_core` alone."""

from pelops.domain.endpoint import BadUrl, Node, UrlProblem, parse_node, read_redis_url

__all__ = ["BadUrl", "Node", "UrlProblem", "parse_node", "read_redis_url"]
