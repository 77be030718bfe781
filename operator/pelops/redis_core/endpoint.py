"""Addresses, for programs that use `redis_core` alone."""

from pelops.domain.endpoint import Node

__all__ = ["Node"]
