"""The protocol between a browser worker and the relay, as sans-I/O code that both ends run.

Standard library only; no clock, no event loop, no logging. Functions get facts and the time, and return facts. The same
files run in the relay (CPython) and in the browser (Pyodide), so the two ends can't disagree.
"""
