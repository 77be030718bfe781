"""Connections to Redis: topology, TLS, Sentinel, Cluster, errors and scripts.

It also exports entry IDs, delivery counts and addresses from `pelops.domain`, for programs that use
only `redis_core`.
"""

from pelops.domain.destinations import (
    AddressRules,
    CredentialGrant,
    parse_address_rules,
    parse_host_patterns,
)
from pelops.domain.endpoint import BadUrl, Node, UrlProblem, parse_node, read_redis_url
from pelops.domain.entry_id import LARGEST_PART, EntryId, parse_entry_id
from pelops.domain.records.ledger import bound_deliveries

__all__ = [
    "LARGEST_PART",
    "AddressRules",
    "BadUrl",
    "CredentialGrant",
    "EntryId",
    "Node",
    "UrlProblem",
    "bound_deliveries",
    "parse_address_rules",
    "parse_entry_id",
    "parse_host_patterns",
    "parse_node",
    "read_redis_url",
]
