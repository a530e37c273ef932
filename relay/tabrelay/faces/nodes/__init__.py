"""Calls and requests from other relays, over the bus."""
