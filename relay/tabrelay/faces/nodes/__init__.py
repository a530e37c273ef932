"""Calls and requests that come in from other relays."""
