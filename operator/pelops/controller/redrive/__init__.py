"""The reconciler of StreamRedrives."""
