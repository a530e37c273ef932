"""Mutation rows: each removes one defence, and names the tests that must fail then. Run `python -m tests.mutations`."""

from __future__ import annotations

from typing import Final

from tests.mutations import browser_package, console, faces, http_server, link, peers_and_clients, relay
from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    *browser_package.MUTATIONS,
    *console.MUTATIONS,
    *faces.MUTATIONS,
    *http_server.MUTATIONS,
    *link.MUTATIONS,
    *peers_and_clients.MUTATIONS,
    *relay.MUTATIONS,
)

__all__ = ["MUTATIONS", "Mutation"]
