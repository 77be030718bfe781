"""The reconciler of StreamAudits."""
