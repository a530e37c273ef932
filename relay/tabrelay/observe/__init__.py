"""Observability: the relay's log, the call log and Prometheus metrics."""
