"""The wire between a browser worker and the relay: pure code that both ends run.

Standard library only; no clock, no event loop, no logging, no I/O. It is fed facts and the time and gives facts back,
so that the same files run in the relay (CPython) and in the browser (Pyodide) and the two can't disagree.
"""
