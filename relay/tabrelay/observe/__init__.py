"""Logs, the call log and metrics."""
