"""Routing from a server name to a peer: switch, registry, catalogues and drain."""
