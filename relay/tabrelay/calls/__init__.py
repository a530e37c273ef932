"""Values that travel through the relay: calls, replies, notices, principals and trace context."""
