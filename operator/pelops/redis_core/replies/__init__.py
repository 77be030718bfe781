"""Replies of servers, which are not trusted: limited in size, then checked for their shape."""
