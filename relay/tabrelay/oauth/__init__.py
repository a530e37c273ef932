"""Tokens of somebody else's authorization server: this relay as an OAuth resource server."""
