"""The kind `StreamAudit`."""
