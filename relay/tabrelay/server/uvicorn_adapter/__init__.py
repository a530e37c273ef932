"""HTTP and WebSocket connections on private parts of uvicorn and websockets, which no other package imports."""
