"""What each attack costs: `python -m bench.siege`."""
