"""Pages and their states, for the accessibility test and for `make screenshots`."""
