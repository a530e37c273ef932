"""Capture of calls for the console: a bounded ring of requests, results and notices, and its live stream of rows."""
