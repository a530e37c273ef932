"""What several relays share: a bus that carries messages between them, and who is on it. One process needs none."""
