"""Message bus between relays: NATS, or memory within one process. A single relay needs none."""
