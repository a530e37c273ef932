"""Prometheus gauges: browsers, servers, sessions, calls and memory budgets, read when `/-/metrics` is requested.

Events are counted while they happen in `observe.call_metrics`. A component with more metrics adds them with
`Gauges.add`. Nothing is stored here but two counters of the bus.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tabrelay import __version__
from tabrelay.calls.peer import PeerKind
from tabrelay.faces.mcp.endpoint import McpEndpoint
from tabrelay.observe import process_metrics
from tabrelay.observe.call_log import CallLog
from tabrelay.observe.call_metrics import CallMetrics
from tabrelay.observe.prometheus import MetricFamily, MetricSample, counter, gauge, render
from tabrelay.peers.browsers.endpoint import BrowserEndpoint
from tabrelay.routing.drain import Drain
from tabrelay.routing.registry import Registry
from tabrelay.routing.status import STATES, state_of
from tabrelay.routing.switch import Switch
from tabserver.wire.names import INSTANCE_SEPARATOR

if TYPE_CHECKING:
    from tabrelay.bus.members import Membership

Source = Callable[[], Iterable[MetricFamily]]

_KINDS: Final = ("browser", "node", "elsewhere")  # style: ok - values of a label that users query


class BusGauges:
    """Metrics of the bus and of the other relays on it."""

    def __init__(self, cluster: Membership) -> None:
        self._cluster = cluster
        self._times_lost = 0
        self._nodes_lost = 0
        cluster.on_down.append(self._bus_down)
        cluster.on_lost.append(self._node_lost)

    def _bus_down(self) -> None:
        self._times_lost += 1

    def _node_lost(self, node: str) -> None:
        self._nodes_lost += 1

    def families(self) -> Iterable[MetricFamily]:
        yield gauge("tabrelay_bus_up", "1 while the bus can be reached.", MetricSample(int(self._cluster.is_up)))
        yield gauge(
            "tabrelay_nodes", "Relays on the bus, including this one.", MetricSample(len(self._cluster.nodes) + 1)
        )
        yield counter("tabrelay_bus_lost_total", "Lost connections to the bus.", MetricSample(self._times_lost))
        yield counter(
            "tabrelay_nodes_lost_total", "Other relays that stopped or timed out.", MetricSample(self._nodes_lost)
        )


class Gauges:
    """One per relay: everything that `/-/metrics` shows."""

    def __init__(
        self,
        metrics: CallMetrics,
        *,
        build: str,
        registry: Registry,
        switch: Switch,
        browsers: BrowserEndpoint,
        endpoint: McpEndpoint,
        drain: Drain,
        call_log: CallLog | None,
    ) -> None:
        self._build = build
        self._registry = registry
        self._switch = switch
        self._browsers = browsers
        self._endpoint = endpoint
        self._drain = drain
        self._call_log = call_log
        self._sources: list[Source] = [metrics.families, self._present, self._budgets, process_metrics.families]

    def add(self, source: Source) -> None:
        """Show these metrics too."""
        self._sources.append(source)

    def text(self) -> str:
        return render(family for source in self._sources for family in source())

    def _present(self) -> Iterable[MetricFamily]:
        about = (("version", __version__), ("build", self._build), ("python", platform.python_version()))
        yield gauge("tabrelay_build_info", "Always 1; the labels name the versions.", MetricSample(1, about))
        is_on = MetricSample(int(self._drain.is_on))
        yield gauge("tabrelay_draining", "1 while the relay stops and takes no new calls.", is_on)
        up = [peer.is_up for peer in self._browsers.browsers()]
        browsers = (
            MetricSample(sum(up), (("state", "connected"),)),
            MetricSample(len(up) - sum(up), (("state", "away"),)),
        )
        yield gauge(
            "tabrelay_browsers", "Sessions with browsers; away: without a socket, within the grace period.", *browsers
        )
        yield gauge("tabrelay_servers", "Known names, by kind of peer and state.", *self._servers())
        yield gauge(
            "tabrelay_sessions",
            "Sessions of clients that begin with initialize.",
            MetricSample(self._endpoint.sessions),
        )
        yield gauge("tabrelay_calls_in_flight", "Calls and listeners in flight.", MetricSample(self._switch.in_flight))
        requests = MetricSample(self._drain.exchanges.count)
        yield gauge("tabrelay_http_requests_in_flight", "HTTP requests and streams being answered.", requests)
        yield gauge("tabrelay_websockets", "Open WebSockets.", MetricSample(self._drain.sockets.count))
        tasks = MetricSample(len(asyncio.all_tasks()))
        yield gauge("tabrelay_tasks", "Tasks of the event loop, including the one that reads this.", tasks)

    def _servers(self) -> Iterable[MetricSample]:
        found = dict.fromkeys([(kind, state) for kind in _KINDS for state in STATES], 0)
        for entry in self._registry.entries():
            if INSTANCE_SEPARATOR not in entry.name:
                kind = _KINDS[2] if entry.connector is not None else "browser"
                is_node = entry.peer is not None and entry.peer.kind is PeerKind.NODE
                found["node" if is_node else kind, state_of(self._registry, entry)] += 1
        return [MetricSample(count, (("kind", kind), ("state", state))) for (kind, state), count in found.items()]

    def _budgets(self) -> Iterable[MetricFamily]:
        budgets = {"links": self._browsers.budget, "bodies": self._endpoint.bodies, "calls": self._switch.budget}
        used = [MetricSample(budget.used, (("budget", name),)) for name, budget in budgets.items()]
        limits = [MetricSample(budget.limit, (("budget", name),)) for name, budget in budgets.items()]
        yield gauge(
            "tabrelay_budget_used_bytes",
            "links: unacknowledged or unread; bodies: requests being read; calls: without an answer.",
            *used,
        )
        yield gauge("tabrelay_budget_limit_bytes", "Limit of each budget.", *limits)
        waiting = MetricSample(self._browsers.waiting_bytes)
        yield gauge("tabrelay_send_queue_bytes", "Written to browsers and not sent yet, all together.", waiting)
        if self._call_log is not None:
            lost = MetricSample(self._call_log.lost)
            yield counter("tabrelay_call_log_lost_total", "Calls that the call log had no room for.", lost)
