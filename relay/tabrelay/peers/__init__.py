"""Peers: the ways out. They never import a face."""
