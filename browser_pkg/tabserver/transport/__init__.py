"""The link over real sockets: dialling, reconnecting with backoff, channels."""
