"""One user's requests, as the audit log of the API server records them."""

from __future__ import annotations

from local_cluster.audit import LEASES, WRITES, AuditTrail, Request, writes

__all__ = ["LEASES", "WRITES", "AuditTrail", "Request", "writes"]
