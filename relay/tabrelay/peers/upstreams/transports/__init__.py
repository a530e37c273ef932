"""Transports to upstreams: child processes over stdio, and URLs over HTTP."""
