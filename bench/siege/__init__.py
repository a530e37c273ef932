"""Cost of each attack: `python -m bench.siege`."""
