"""Composition root, uvicorn with two protocol classes, fast path and worker processes."""
