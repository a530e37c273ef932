"""Authentication and authorisation: the gate, routes, policy, tokens, pairing, OAuth and rate limits."""
