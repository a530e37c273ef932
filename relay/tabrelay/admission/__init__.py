"""Authentication and authorization: the gate, routes, policy, tokens, pairing, OAuth and rate limits."""
