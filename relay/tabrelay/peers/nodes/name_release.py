"""Release of names over the bus: for a page at another relay than the browser that has the name.

Only the relay with the browser's link knows all of its tabs and calls, so that relay decides, by the rule of L8, and
ends the browser's session. It does not start the new one: the page's own relay does.
"""

from __future__ import annotations

from typing import Any

from tabrelay.bus.members import Membership
from tabrelay.calls.principal import Principal
from tabrelay.peers.browsers.name_claims import NameClaims
from tabrelay.peers.nodes.locator import BrowserLocator


class NameRelease:
    """One per relay that is on a bus. Implements what name claims need (`OtherRelays`)."""

    def __init__(self, cluster: Membership, locator: BrowserLocator) -> None:
        self._cluster = cluster
        self._locator = locator

    async def find(self, server: str) -> None:
        await self._locator.find(server)

    async def ask_release(self, principal: Principal, server: str) -> None:
        question = {"server": server, "who": principal.id, "origin": principal.origin}
        for answer in await self._cluster.ask_all("release", question):
            released = answer.get("released")
            for address in released if isinstance(released, list) else ():
                self._locator.left(str(address), str(answer.get("from")))


def answer_releases(cluster: Membership, claims: NameClaims) -> None:
    """Answer the other relays that ask for names of this relay's browsers."""

    def answer(question: dict[str, Any]) -> dict[str, Any] | None:
        server, who, origin = (question.get(key) for key in ("server", "who", "origin"))
        if not isinstance(server, str) or not isinstance(who, str) or not isinstance(origin, str | None):
            return None
        released = claims.release(Principal(who, frozenset(), origin), server)
        return {"released": released} if released else None

    cluster.handle_question("release", answer)
