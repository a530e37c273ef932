"""Settings, server specifications and configuration files: reading and validation. Starts nothing."""
