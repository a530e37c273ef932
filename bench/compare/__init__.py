"""Two versions of the product side by side in one run: `python -m bench.compare`."""
