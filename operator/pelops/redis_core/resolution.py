"""Resolves a host once to the addresses that the installation's rules allow.

Connections use these addresses, never the name: a second lookup could return another address.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from pelops.domain.destinations import AddressRules
from pelops.domain.endpoint import Node
from pelops.errors import AddressNotAllowed, RedisUnavailable

MOST_ADDRESSES: Final = 8  # tried one after the other


async def resolve(node: Node, rules: AddressRules) -> tuple[str, ...]:
    """The allowed addresses of a node, at least one.

    Raises AddressNotAllowed when all addresses are refused, RedisUnavailable for a name that cannot
    be resolved.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as error:
        raise _unresolved(node) from error
    return _choose(node, rules, found)


def resolve_blocking(node: Node, rules: AddressRules) -> tuple[str, ...]:
    """As `resolve`, for programs without an event loop."""
    try:
        found = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as error:
        raise _unresolved(node) from error
    return _choose(node, rules, found)


def _unresolved(node: Node) -> RedisUnavailable:
    return RedisUnavailable(f"Redis at {node} cannot be reached: its host name cannot be resolved")


def _choose(node: Node, rules: AddressRules, found: list[Any]) -> tuple[str, ...]:
    addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    objections = {address: rules.objection(node.host, address) for address in addresses}
    allowed = [address for address, objection in objections.items() if objection is None]
    if allowed:
        return tuple(allowed[:MOST_ADDRESSES])
    reasons = sorted({objection for objection in objections.values() if objection is not None})
    if not reasons:
        raise _unresolved(node)
    raise AddressNotAllowed(f"Redis at {node} is not allowed: it is {' and '.join(reasons)}")
