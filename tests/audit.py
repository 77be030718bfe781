"""What the audit log of the API server says about one user's requests."""

from __future__ import annotations

from local_cluster.audit import LEASES, WRITES, AuditTrail, Request, writes

__all__ = ["LEASES", "WRITES", "AuditTrail", "Request", "writes"]
