"""Configuration files: TOML of our own, and the forms that other programs have. Reads and checks; starts nothing."""
