"""Limits and checks of JSON from clients and servers: size, depth, weight, hidden characters, lists."""
