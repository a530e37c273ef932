"""Call metrics: counters and latency histograms of calls, refusals and browser connections, for `/-/metrics`.

Runs in every call, so it costs two lookups and a few additions, and no lock: one event loop, one thread. Label values
come from short lists; only server names come from users, and beyond a number of them the rest share one label. Does not
read arguments, results, principals or tokens for labels.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import orjson

from tabrelay.calls.calls import LISTS, PLAIN_RESULT, QUICK, Call
from tabrelay.errors import RelayError
from tabrelay.observe.prometheus import MetricFamily, MetricSample, counter, histogram
from tabserver.wire import methods
from tabserver.wire.control_messages import RELAY
from tabserver.wire.names import server_of

METHODS: Final = (
    frozenset(LISTS)
    | QUICK
    | {
        methods.TOOLS_CALL,
        methods.RESOURCES_READ,
        methods.PROMPTS_GET,
        methods.COMPLETION_COMPLETE,
        methods.SUBSCRIPTIONS_LISTEN,
    }
)
OTHER: Final = "other"
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
MAX_KNOWN: Final = 4096  # pairs of address and method; browsers that share a name have different addresses
_IS_ERROR: Final = re.compile(r'"isError"\s*:\s*true')
_ASKS: Final = re.compile(r'"resultType"\s*:\s*"input_required"')
_SMALL: Final = 64 * 1024  # characters of a reply that is parsed to be sure


class CallSeries:
    """The calls of one method at one server."""

    __slots__ = ("buckets", "outcomes", "total_s")

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0


class CallMetrics:
    """One per relay."""

    def __init__(self, most_servers: int) -> None:
        """`most_servers`: number of servers with a separate label."""
        self._most_servers = most_servers
        self._servers: set[str] = set()
        self._series: dict[tuple[str, str], CallSeries] = {}  # by label
        self._known: dict[tuple[str, str], CallSeries] = {}  # by address and method of calls
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._connections: Counter[str] = Counter()
        self._disconnections = 0

    def record(self, server: str, call: Call, took_s: float, outcome: RelayError | tuple[int | None, str]) -> None:
        """A call has ended: with an error of the relay, or with a reply (its error code, its text)."""
        series = self._known.get((server, call.method))
        if series is None:
            series = self._open(server, call.method)
        if call.caller.principal == RELAY:
            return
        how = "ok" if outcome is PLAIN_RESULT else outcome_of(outcome)
        series.outcomes[how] += 1
        # A subscription lasts as long as its client listens: its duration is no latency.
        if call.method != methods.SUBSCRIPTIONS_LISTEN:
            series.buckets[bisect_left(BOUNDS_S, took_s)] += 1
            series.total_s += took_s

    def _open(self, server: str, method: str) -> CallSeries:
        name = server_of(server)
        if name not in self._servers:
            if len(self._servers) < self._most_servers:
                self._servers.add(name)
            else:
                name = OTHER
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        labels = (name, method if method in METHODS else OTHER)
        series = self._known[server, method] = self._series.setdefault(labels, CallSeries())
        return series

    def record_refusal(self, at: str, reason: str) -> None:
        """A request was refused by the gate, the browser endpoint or a face."""
        self._refusals[at, reason] += 1

    def record_connection(self, how: str) -> None:
        self._connections[how] += 1

    def record_disconnection(self) -> None:
        self._disconnections += 1

    def families(self) -> Iterable[MetricFamily]:
        calls, took = [], []
        for (server, method), series in self._series.items():
            labels = (("server", server), ("method", method))
            calls += [MetricSample(count, (*labels, ("outcome", how))) for how, count in series.outcomes.items()]
            if any(series.buckets):
                took += histogram(BOUNDS_S, series.buckets, series.total_s, labels)
        yield counter("tabrelay_calls_total", "Calls that ended, by outcome.", *calls)
        about = "Time from the parsed request to its reply."
        yield MetricFamily("tabrelay_call_duration_seconds", "histogram", about, tuple(took))
        refusals = [MetricSample(n, (("at", at), ("reason", why))) for (at, why), n in self._refusals.items()]
        yield counter("tabrelay_refusals_total", "Requests that the relay itself refused.", *refusals)
        connections = [MetricSample(self._connections[how], (("how", how),)) for how in ("new", "resumed", "plain")]
        yield counter("tabrelay_browser_connections_total", "Browsers that connected or reconnected.", *connections)
        yield counter(
            "tabrelay_browser_disconnections_total", "Sockets that closed.", MetricSample(self._disconnections)
        )


def outcome_of(outcome: RelayError | tuple[int | None, str]) -> str:
    """The `outcome` label: one of a short list of words."""
    if outcome is PLAIN_RESULT:
        return "ok"
    if isinstance(outcome, RelayError):
        return outcome.reason
    code, text = outcome
    if code is not None:
        return "error"
    # A text search is cheap; only a reply that may be no plain result is parsed.
    if '"isError"' in text and _IS_ERROR.search(text) and _result(text).get("isError") is True:
        return "tool_error"
    if '"input_required"' in text and _ASKS.search(text) and _result(text).get("resultType") == "input_required":
        return "asks_client"
    return "ok"


def _result(text: str) -> dict[str, object]:
    if len(text) > _SMALL:  # parsing it would block the event loop for a label: the match is trusted
        return {"isError": True, "resultType": "input_required"}
    result = orjson.loads(text).get("result")
    return result if isinstance(result, dict) else {}
