"""The relay's own pages and the routes below `/-/`."""
