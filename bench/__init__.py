"""Benchmarks of Tabrelay beside a floor. Scripts, not part of the product: run them as `python -m bench.hop`."""
