"""Browsers on a bus of several relays: which relay has one, and calls to those of other relays."""
