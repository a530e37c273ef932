"""The relay's own pages and routes below `/-/`."""
