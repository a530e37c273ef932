"""Reasons why a page does not serve, and options of `connect`: the code, the guide and the types agree."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

from tests.support.nodejs import node
from tests.support.paths import ROOT

JS = ROOT / "browser_pkg" / "tabserver" / "js"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
BLOCK = re.compile(r"(?<=<!-- reasons -->\n).*?(?=<!-- /reasons -->)", re.DOTALL)
TYPES = (JS / "client.d.ts").read_text(encoding="utf-8")


async def evaluated(module: str, expression: str) -> Any:
    """The value of an expression in which `m` is a module of the client."""
    script = f'globalThis.location = new URL("http://localhost/"); const m = await import("{(JS / module).as_uri()}");'
    ended = await node("--input-type=module", "--eval", f"{script} console.log(JSON.stringify({expression}));")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def entry(code: str, reason: dict[str, str]) -> str:
    return (
        f"### {reason['help']}\n\n**{reason['happened']}** `{code}`\n\n"
        f"Remedy: {reason['todo'].replace('{advice}', 'the message says what to write.')}\n\n"
    )


async def test_the_reference_has_every_reason_with_the_text_of_the_client() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write the entries again."""
    reasons: dict[str, dict[str, str]] = await evaluated("client/reasons.js", "m.REASONS")
    made = "".join(entry(code, reason) for code, reason in reasons.items())
    text = ERRORS.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        text = BLOCK.sub(lambda _: f"\n{made}", text)
        ERRORS.write_text(text, encoding="utf-8")
    assert BLOCK.findall(text) == [f"\n{made}"]
    assert len({reason["help"] for reason in reasons.values()}) == len(reasons)


async def test_each_reason_says_what_happened_and_what_to_do_and_the_types_have_its_code() -> None:
    reasons: dict[str, dict[str, str]] = await evaluated("client/reasons.js", "m.REASONS")
    [codes] = re.findall(r"export type ReasonCode =(.*?);", TYPES, re.DOTALL)
    assert re.findall(r'"(\w+)"', codes) == list(reasons)
    [whys] = re.findall(r"export type Why =(.*?);\n\n", TYPES, re.DOTALL)
    assert {reason["why"] for reason in reasons.values()} <= set(re.findall(r'\| "(\w+)"', whys))
    for code, reason in reasons.items():
        assert re.search(r"[.}]$", reason["happened"]) and reason["todo"], code


async def test_the_loader_has_the_same_messages_as_the_client() -> None:
    reasons: dict[str, dict[str, str]] = await evaluated("client/reasons.js", "m.REASONS")
    loader = re.sub(r'[`"] \+\n\s*[`"]', "", (JS / "tabrelay.js").read_text(encoding="utf-8"))
    values = {
        "relay": "${RELAY}",
        "socket": '${RELAY.replace("http", "ws")}',
        "directive": "${blockedBy}",
        "origin": "${origin}",
        "port": "${port || 80}",
    }
    for code in ("insecure_page", "relay_down", "policy_blocks_relay", "mixed_content", "network_denied"):
        text = f"{reasons[code]['happened']} {reasons[code]['todo']}"
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        assert f"{text} [{reasons[code]['help']}]" in loader, code


async def test_a_page_that_the_relay_serves_names_the_command_that_started_it() -> None:
    start = "(address, relay) => (globalThis.location = new URL(address), m.startCommand(relay))"
    here = "http://localhost:4747"
    pages = {f"{here}/-/demo/": "demo", f"{here}/": "serve", "http://localhost:5173/-/demo/": "serve"}
    for address, verb in pages.items():
        found = await evaluated("client/relay_health.js", f'({start})("{address}", "{here}")')
        assert found == f"tabrelay {verb}"
    problem = 'new m.Problem("relay_down", { relay: "r", start: "tabrelay dev" })'
    assert "Start it with: tabrelay dev. The page" in await evaluated("client/reasons.js", f"{problem}.message")


async def test_the_list_of_options_is_that_of_the_types() -> None:
    options: dict[str, list[str]] = await evaluated("client/options.js", "m.OPTIONS")

    def members(interface: str) -> set[str]:
        [body] = re.findall(rf"^export interface {interface} {{\n(.*?)^}}", TYPES, re.MULTILINE | re.DOTALL)
        return set(re.findall(r"^  (\w+)\??:", body, re.MULTILINE))

    assert set(options) == members("ConnectOptions")
    assert set(options["timing"]) == members("Timing")
    assert set(options["runPython"]) == members("RunPython")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("wroker", "worker"),
        ("Server", "server"),
        ("module", "modules"),
        ("aprove", "approve"),
        ("runpython", "runPython"),
        ("colour", None),
        ("x" * 500, None),
    ],
)
async def test_a_misspelled_option_is_recognised(given: str, meant: str | None) -> None:
    assert await evaluated("client/options.js", f"m.nearest('{given}', Object.keys(m.OPTIONS)) ?? null") == meant


POLICIES = {
    "default-src 'self'": "script-src",
    "script-src 'self' RELAY": None,
    "script-src 'self' 'unsafe-eval' http:; connect-src 'self' RELAY": "connect-src",
    "script-src 'self' 'unsafe-eval' *; connect-src RELAY ws://127.0.0.1:4747": None,
    "script-src 'wasm-unsafe-eval' 127.0.0.1:*; connect-src *": None,
    "img-src 'none'": None,
}


async def test_a_worker_files_policy_is_compared_with_what_the_worker_loads() -> None:
    relay = "http://127.0.0.1:4747"
    given = json.dumps([policy.replace("RELAY", relay) for policy in POLICIES])
    found = await evaluated(
        "client/policy.js", f"{given}.map((each) => m.directiveThatBlocks(each, '{relay}') ?? null)"
    )
    assert found == list(POLICIES.values())
    wasm = ["script-src 'self'", "default-src 'wasm-unsafe-eval'", "script-src 'unsafe-eval'", "img-src 'none'"]
    blocked = await evaluated("client/policy.js", f"{json.dumps(wasm)}.map(m.blocksWasm)")
    assert blocked == [True, False, False, False]


PERMISSIONS = [
    ("prompt", "network_prompt", "The browser waits for permission: http://app.example wants to reach the relay"),
    ("denied", "network_denied", "allow access to apps on this device"),
]


@pytest.mark.parametrize(("permission", "code", "told"), PERMISSIONS)
async def test_a_page_that_may_not_reach_this_computer_gets_the_reason_by_its_permission(
    permission: str, code: str, told: str
) -> None:
    here = "globalThis.location = new URL('http://app.example/')"
    asked = f"{{ permissions: {{ query: async () => ({{ state: '{permission}' }}) }} }}"
    navigator = f"Object.defineProperty(globalThis, 'navigator', {{ value: {asked} }})"
    why = "m.whyUnreachable('http://127.0.0.1:4747', 'notes', AbortSignal.abort())"
    found = await evaluated(
        "client/relay_health.js", f"({here}, {navigator}, await {why}.then(({{ code, message }}) => [code, message]))"
    )
    assert found[0] == code and told in found[1]


HOSTS = {
    "localhost": True,
    "127.0.0.1": True,
    "[::1]": True,
    "0.0.0.0": True,
    "devbox": True,
    "app.test": True,
    "192.168.1.7": True,
    "172.20.0.3": True,
    "172.32.0.3": False,
    "app.example": False,
    "[2001:db8::1]": False,
}


async def test_the_panel_is_for_addresses_of_this_computer_and_of_private_networks() -> None:
    found = await evaluated("client/relay_health.js", f"{json.dumps(list(HOSTS))}.map(m.isDeveloped)")
    assert dict(zip(HOSTS, found, strict=True)) == HOSTS
    [pattern] = re.findall(r"isPrivate = (/.*/);", (JS / "client/relay_health.js").read_text(encoding="utf-8"))
    assert f"{pattern}.test(host)" in (JS / "tabrelay.js").read_text(encoding="utf-8")


async def test_a_worker_of_another_version_asks_for_a_reload() -> None:
    stated = "(({ code, message, remedy }) => [code, message, remedy])(m.Problem.stated('version', null, {}))"
    assert await evaluated("client/reasons.js", stated) == [
        "version",
        "The relay and this page have different versions. Reload the page.",
        "reload",
    ]


async def test_a_reason_of_the_relay_keeps_its_facts_and_gets_advice() -> None:
    values = "{ server: 'notes', relay: 'http://relay', origin: 'http://app' }"

    async def stated(why: str, text: str) -> Any:
        problem = f"m.Problem.stated('{why}', {text}, {values})"
        return await evaluated("client/reasons.js", f"(({{ happened, todo }}) => [happened, todo])({problem})")

    assert await stated("taken", "'Held by http://x.'") == [
        "Held by http://x.",
        "Close that page: this one tries again by itself. "
        "localhost, 127.0.0.1 and [::1] are three origins: open one of them.",
    ]
    assert await stated("forbidden", "'No. Do this: that'") == ["No.", "Do this: that"]
    assert await stated("lost", "null") == ["The connection to the relay was lost.", "The page tries again by itself."]
