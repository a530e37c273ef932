"""Settings, server specifications and configuration files. Reads and checks; starts nothing."""
