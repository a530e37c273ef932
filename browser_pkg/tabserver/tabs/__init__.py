"""Tabs, the tools that they offer, and the calls that run in them."""
