"""The composition root, uvicorn with two protocol classes, the fast path and worker processes."""
