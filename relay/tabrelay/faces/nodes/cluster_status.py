"""Combined status of all relays on a bus: the list of nodes, and each server as reported by the node with its browser.

A node answers in pages of ROWS_PER_PAGE servers. For a server that another node holds, that node's row replaces ours,
with our address in it. Caches nothing: every status request asks all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from tabrelay.bus.envelope import number
from tabrelay.bus.members import Membership
from tabrelay.routing.status import OFFLINE

# Servers in one answer of a node: a bus limits the size of a message, and each server takes time to serialize.
ROWS_PER_PAGE: Final = 50
MAX_PAGES: Final = 64
NODE_FIELDS: Final = ("version", "port", "browsers", "in_flight", "since")


class ClusterStatus:
    """One per relay that is on a bus."""

    def __init__(
        self,
        cluster: Membership,
        url: str,
        names: Callable[[], list[str]],
        rows: Callable[[Collection[str]], list[dict[str, Any]]],
        about: Callable[[], dict[str, Any]],
    ) -> None:
        """`url`: of this node. `names`: the servers with a browser here; `rows`: their rows in the status.
        `about`: what other nodes receive about this one."""
        self._url = url
        self._cluster = cluster
        self._names = names
        self._rows = rows
        self._about = about
        cluster.handle_question("status", self._answer)

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        page = question.get("page")
        first = page * ROWS_PER_PAGE if isinstance(page, int) else 0
        names = self._names()
        return {
            "rows": self._rows(frozenset(names[first : first + ROWS_PER_PAGE])),
            "more": len(names) > first + ROWS_PER_PAGE,
        }

    async def gather(
        self, own: list[dict[str, Any]], may_see: Callable[[str], bool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The servers of all nodes, and the nodes. The row of a server comes from the node with its browser."""
        rows = {row["name"]: row | {"node": self._cluster.id} if row["state"] != OFFLINE else row for row in own}
        for page in range(MAX_PAGES):
            answers = await self._cluster.ask_all("status", {"page": page})
            for answer in answers:
                self._add(rows, answer, may_see)
            if not any(answer.get("more") for answer in answers):
                break
        return [rows[name] for name in sorted(rows)], self._describe()

    def _add(self, rows: dict[str, Any], answer: dict[str, Any], may_see: Callable[[str], bool]) -> None:
        rows_of_node = answer.get("rows")
        for row in rows_of_node if isinstance(rows_of_node, list) else ():
            name = row.get("name") if isinstance(row, dict) else None
            if not isinstance(name, str) or not may_see(name):
                continue
            known = rows.get(name)
            if known is not None and "instances" in row and "instances" in known:
                continue  # every node lists all browsers that share the name
            # The server can be called through this node too, and this is the address that the client uses.
            instances = row.get("instances")
            for one in (row, *(instances if isinstance(instances, list) else ())):
                if not isinstance(one, dict):
                    continue
                one["mcp_url"] = f"{self._url}/{str(one.get('mcp_url')).rpartition('/')[2]}"
            rows[name] = row | {"node": str(answer.get("from"))}

    def _describe(self) -> list[dict[str, Any]]:
        """This node first, then the others in the order in which they joined."""
        here = {"id": self._cluster.id, "is_this": True, "since": self._cluster.since, **self._about()}
        others = sorted(self._cluster.nodes.values(), key=lambda node: number(node.about.get("since")) or 0.0)
        return [
            here,
            *({"id": node.id, "is_this": False, **{k: node.about.get(k) for k in NODE_FIELDS}} for node in others),
        ]
