"""Browsers that are connected to another relay."""
