"""Modern clients at servers that speak only the handshake era. No I/O in here: peers bring their own."""
