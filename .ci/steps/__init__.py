"""The steps of set-up: each brings one thing, if it is missing. Standard library only, and nothing of the house."""
