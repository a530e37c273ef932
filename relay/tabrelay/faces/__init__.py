"""Inbound interfaces. A face never imports a peer."""
