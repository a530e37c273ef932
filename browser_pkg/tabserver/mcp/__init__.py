"""The MCP server core: requests, sessions, subscriptions and parked calls."""
