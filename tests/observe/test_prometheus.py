"""`/-/metrics`: valid for a real Prometheus parser, correct, bounded, and only for tokens with the scope `metrics`."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tabrelay.admission.tokens import Tokens
from tabrelay.calls.calls import Call
from tabrelay.cli.main import main
from tabrelay.errors import Busy
from tabrelay.observe.call_metrics import OTHER, CallMetrics, outcome_of
from tabrelay.observe.prometheus import CONTENT_TYPE, MetricSample, gauge, render
from tabserver.wire.control_messages import RELAY
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.bridge_harness import until
from tests.support.link_worker import SyntheticWorker
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.paths import ROOT
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

DOCS = ROOT / "docs" / "guides"
NAMES = re.compile(r"\b(?:tabrelay|process)_[a-z_]+\b")
PARTS = ("_bucket", "_sum", "_count")
CALLER = Caller(era=Era.MODERN, version="2026-07-28", principal="token:ci")
Figures = dict[str, dict[tuple[tuple[str, str], ...], float]]


def read(text: str) -> Figures:
    """Name of a sample -> labels -> value, by the parser of the Prometheus client."""
    found: Figures = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            row = found.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in row, f"{sample.name} {labels} is there twice"
            row[labels] = sample.value
    return found


def figure(found: Figures, name: str, **labels: str) -> float:
    return found.get(name, {}).get(tuple(sorted(labels.items())), 0.0)


async def scrape(relay: RunningRelay) -> Figures:
    answer = await relay.http.get("/-/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == CONTENT_TYPE
    return read(answer.text)


def call(method: str = "tools/call", caller: Caller = CALLER) -> Call:
    return Call("c", 1, method, "{}", caller)


def counted(meter: CallMetrics) -> Figures:
    return read(render(meter.families()))


async def test_calls_are_counted_by_server_method_and_outcome(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, away_wait_s=0.1, servers=("absent",)) as relay:

        def answer(worker: SyntheticWorker, event: Any, message: dict[str, Any]) -> None:
            worker.answer(event, {"content": [], "isError": message["params"]["name"] == "broken"})

        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            worker.on_call = answer
            await relay.has_read("notes")
            for tool in ("echo", "echo", "broken"):
                await relay.call("notes", tool)
            during = await scrape(relay)
        await relay.http.post("/absent", **relay.modern("tools/call", {"name": "x", "arguments": {}}))
        after = await scrape(relay)
    one = {"server": "notes", "method": "tools/call"}
    assert figure(during, "tabrelay_calls_total", **one, outcome="ok") == 2
    assert figure(during, "tabrelay_calls_total", **one, outcome="tool_error") == 1
    assert figure(during, "tabrelay_call_duration_seconds_count", **one) == 3
    assert figure(during, "tabrelay_call_duration_seconds_bucket", **one, le="+Inf") == 3
    assert 0 < figure(during, "tabrelay_call_duration_seconds_sum", **one) < 60
    assert figure(during, "tabrelay_browsers", state="connected") == 1
    assert figure(during, "tabrelay_servers", kind="browser", state="online") == 1
    assert figure(during, "tabrelay_servers", kind="browser", state="offline") == 1
    absent = {"server": "absent", "method": "tools/call", "outcome": "server_offline"}
    assert figure(after, "tabrelay_calls_total", **absent) == 1
    assert figure(after, "tabrelay_refusals_total", at="face", reason="server_offline") == 1


async def test_what_there_is_now_is_shown_while_it_is_there(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
        asyncio.TaskGroup() as tasks,
    ):
        await relay.has_read("notes")
        waiting: list[Any] = []
        worker.on_call = lambda worker, event, message: waiting.append(event)
        running = tasks.create_task(relay.call("notes", "slow"))
        await until(lambda: bool(waiting))
        during = await scrape(relay)
        worker.answer(waiting[0], {"content": []})
        await worker.flush()
        await running
        after = await scrape(relay)
    assert figure(during, "tabrelay_calls_in_flight") == 1
    assert figure(during, "tabrelay_http_requests_in_flight") == 1
    assert figure(during, "tabrelay_websockets") == 1
    assert figure(during, "tabrelay_tasks") > figure(after, "tabrelay_tasks") > 0
    assert 0 < figure(during, "tabrelay_budget_limit_bytes", budget="links") <= relay.settings.replay_budget
    assert figure(during, "tabrelay_budget_used_bytes", budget="links") > 0  # a call without an acknowledgement
    assert figure(after, "tabrelay_calls_in_flight") == 0
    assert figure(after, "process_resident_memory_bytes") > 10e6
    assert figure(after, "process_cpu_seconds_total") > 0
    assert 0 < figure(after, "process_open_fds") < figure(after, "process_max_fds")


async def test_reconnecting_browsers_are_distinguished_from_new_ones(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await relay.has_read("notes")
            await worker.cut()
            await worker.dial()
            await worker.until(lambda: worker.link.is_up)
        found = await scrape(relay)
    assert figure(found, "tabrelay_browser_connections_total", how="new") == 1
    assert figure(found, "tabrelay_browser_connections_total", how="resumed") == 1
    assert figure(found, "tabrelay_browser_disconnections_total") >= 1


async def test_refusals_are_counted_by_reason_and_by_who_refused(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, rate_s=0.001, rate_burst=3, servers=("notes",)) as relay:
        busy = relay.tokens.issue_named("busy", ["call"])
        for _ in range(5):
            await relay.http.post("/notes", headers={"Authorization": f"Bearer {busy}"}, content=b"{")
        await relay.http.get("/notes", headers={"Authorization": "Bearer wrong"})
        await relay.http.get("/-/status", headers={"Host": "evil.example"})
        found = await scrape(relay)
    assert figure(found, "tabrelay_refusals_total", at="gate", reason="rate_limited") == 2
    assert figure(found, "tabrelay_refusals_total", at="gate", reason="unauthorized") == 1
    assert figure(found, "tabrelay_refusals_total", at="gate", reason="forbidden") == 1
    assert figure(found, "tabrelay_refusals_total", at="face", reason="content_type") == 3


async def test_only_a_token_for_it_reads_the_figures_and_it_reads_nothing_else(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        scraper, client, page = (relay.tokens.issue_named(name, [name]) for name in ("metrics", "call", "serve"))
        statuses = {}
        for name, token in (("scraper", scraper), ("client", client), ("page", page), ("own", relay.token)):
            headers = {"Authorization": f"Bearer {token}"}
            statuses[name] = (await relay.http.get("/-/metrics", headers=headers)).status_code
        without_token = await relay.http.get("/-/metrics", headers={"Authorization": ""})
        by_scraper = {"Authorization": f"Bearer {scraper}"}
        others = [await relay.http.get(path, headers=by_scraper) for path in ("/-/status", "/-/calls", "/-/pairs")]
        request = relay.modern("tools/list")
        others.append(await relay.http.post("/notes", **{**request, "headers": {**request["headers"], **by_scraper}}))
        foreign = await relay.http.get("/-/metrics", headers={"Origin": "https://evil.example"})
    assert statuses == {"scraper": 200, "client": 403, "page": 403, "own": 200}
    assert without_token.status_code == 401
    assert [answer.status_code for answer in others] == [403, 403, 403, 403]
    assert foreign.status_code == 403


async def test_metrics_that_are_switched_off_are_reported_as_such(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, metrics=False) as relay:
        answer = await relay.http.get("/-/metrics")
    assert answer.status_code == 404 and "TABRELAY_METRICS" in answer.json()["message"]


def test_names_that_users_make_up_can_not_grow_the_page_without_end() -> None:
    meter = CallMetrics(most_servers=3)
    for number in range(10_000):
        meter.record(f"s{number}", call(), 0.01, (None, "{}"))
        meter.record("s0", call(f"made/up{number}"), 0.01, (None, "{}"))
    found = counted(meter)["tabrelay_calls_total"]
    assert {dict(labels)["server"] for labels in found} == {"s0", "s1", "s2", OTHER}
    assert figure(counted(meter), "tabrelay_calls_total", server=OTHER, method="tools/call", outcome="ok") == 9_997
    assert figure(counted(meter), "tabrelay_calls_total", server="s0", method=OTHER, outcome="ok") == 10_000
    assert len(meter._known) <= 4096


def test_browsers_that_share_a_name_share_its_label() -> None:
    meter = CallMetrics(most_servers=10)
    for browser in ("notes~laptop", "notes~phone", "notes"):
        meter.record(browser, call(), 0.01, (None, "{}"))
    assert figure(counted(meter), "tabrelay_calls_total", server="notes", method="tools/call", outcome="ok") == 3


def test_what_the_relay_asks_for_itself_and_listeners_are_no_latency_of_calls() -> None:
    meter = CallMetrics(most_servers=10)
    meter.record("notes", call("tools/list", Caller(Era.MODERN, "2026-07-28", RELAY)), 0.01, (None, "{}"))
    meter.record("notes", call("subscriptions/listen"), 3600.0, (None, "{}"))
    assert counted(meter).get("tabrelay_call_duration_seconds_count", {}) == {}
    listened = {"server": "notes", "method": "subscriptions/listen", "outcome": "ok"}
    assert counted(meter)["tabrelay_calls_total"] == {tuple(sorted(listened.items())): 1.0}


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        ((None, '{"result":{"content":[]}}'), "ok"),
        ((None, '{"result":{"content":[],"isError":false}}'), "ok"),
        ((None, '{"result":{"content":[],"isError" : true}}'), "tool_error"),
        # A page may return anything: text that only resembles a tool error does not count as one.
        ((None, json.dumps({"result": {"structuredContent": {"isError": True}}})), "ok"),
        ((None, json.dumps({"result": {"content": [{"type": "text", "text": '"isError":true'}]}})), "ok"),
        ((None, '{"result":{"resultType":"input_required"}}'), "asks_client"),
        ((-32602, '{"error":{"code":-32602}}'), "error"),
        (Busy("x"), "busy"),
    ],
)
def test_an_outcome_is_one_of_a_few_words(outcome: Any, word: str) -> None:
    assert outcome_of(outcome) == word


def test_labels_are_written_so_that_a_parser_reads_them_back() -> None:
    strange = 'a"b\\c\nd{e="f"}, 7 '
    text = render([gauge("tabrelay_x", "What.", MetricSample(1.5, (("name", strange), ("empty", ""))))])
    assert read(text) == {"tabrelay_x": {(("empty", ""), ("name", strange)): 1.5}}


def test_buckets_add_up_and_a_call_falls_into_the_right_one() -> None:
    meter = CallMetrics(most_servers=1)
    for took_s in (0.0005, 0.001, 0.0011, 400.0):
        meter.record("notes", call(), took_s, (None, "{}"))
    found = counted(meter)["tabrelay_call_duration_seconds_bucket"]
    by_bound = {dict(labels)["le"]: value for labels, value in found.items()}
    assert (by_bound["0.001"], by_bound["0.0025"], by_bound["300"], by_bound["+Inf"]) == (2, 3, 3, 4)


async def test_relays_on_a_bus_report_their_number_and_when_it_was_lost(tmp_path: Path) -> None:
    hub = MemoryBroker()
    homes = [tmp_path / name for name in ("a", "b")]
    for home in homes:
        home.mkdir(mode=0o700)
        (home / "session.key").write_text("tr_" + "k" * 43 + "\n")
        (home / "session.key").chmod(0o600)
    async with (
        RunningRelay(homes[0], bus=MemoryBus(hub)) as one,
        RunningRelay(homes[1], bus=MemoryBus(hub)) as two,
        SyntheticWorker(two.url, two.token, "notes"),
    ):
        await two.has_read("notes")
        await seen(one, "tabrelay_nodes", 2)
        assert "result" in (await one.call("notes", "echo")).json()
        found = await scrape(one)
        assert figure(found, "tabrelay_bus_up") == 1
        assert figure(found, "tabrelay_servers", kind="node", state="online") == 1
        called = {"server": "notes", "method": "tools/call", "outcome": "ok"}
        assert figure(found, "tabrelay_calls_total", **called) == 1
        hub.cut()
        await seen(one, "tabrelay_bus_up", 0)
        assert figure(await scrape(one), "tabrelay_bus_lost_total") == 1
        hub.restore()
        await seen(one, "tabrelay_bus_up", 1)


async def seen(relay: RunningRelay, name: str, value: float) -> None:
    async with asyncio.timeout(BOUND_S):
        while figure(await scrape(relay), name) != value:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_a_token_for_figures_can_not_be_for_one_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["token", "new", "prom", "--for", "metrics", "--home", str(tmp_path)]
    assert main([*command, "--server", "notes"]) != 0
    assert "--for metrics" in capsys.readouterr().err
    assert main(command) == 0
    token = capsys.readouterr().out.strip()
    principal = Tokens(tmp_path).identify(token, None)
    assert principal is not None and principal.scopes == {"metrics"}


async def test_the_dashboard_the_alerts_and_the_page_name_what_there_is(tmp_path: Path) -> None:
    """Also in the other direction: the page explains every metric."""
    bus = MemoryBus(MemoryBroker())
    async with RunningRelay(tmp_path, bus=bus) as relay, SyntheticWorker(relay.url, relay.token, "notes"):
        await relay.has_read("notes")
        await relay.call("notes", "echo")
        text = (await relay.http.get("/-/metrics")).text
    families = {family.name: family.type for family in text_string_to_metric_families(text)}
    # The parser removes the suffix of counters.
    there = {f"{name}_total" if kind == "counter" else name for name, kind in families.items()}
    samples = there | {f"{name}{part}" for name, kind in families.items() if kind == "histogram" for part in PARTS}
    for file in ("monitoring/dashboard.json", "monitoring/alerts.yml"):
        named = set(NAMES.findall((DOCS / file).read_text(encoding="utf-8")))
        assert len(named) > 5 and named - samples == set(), file
    page = (DOCS.parent / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", page.partition("**Outcomes**")[0], re.MULTILINE))
    assert rows == there


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = json.loads((DOCS / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(ids) and all(panel["targets"] for panel in board["panels"])
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(board["panels"])))
    assert used - variables == set()
