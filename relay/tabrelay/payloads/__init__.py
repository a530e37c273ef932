"""JSON text within limits: size, depth, weight, hidden characters and lists from servers."""
