"""Faces: the ways in. They never import a peer."""
