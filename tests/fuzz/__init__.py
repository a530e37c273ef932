"""Coverage-guided fuzzing of the parsers, each against another implementation. See `__main__`."""
