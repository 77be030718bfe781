"""The archive of an audit: streams and groups as tables, window by window."""
