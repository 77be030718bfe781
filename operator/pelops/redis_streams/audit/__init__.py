"""Records of audits beside each group."""
