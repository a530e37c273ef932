"""Would a call succeed now? The last part of `tabrelay doctor`: what is missing for one, in the order to do it.

A call needs a relay that runs, a page or upstream that is online, and a tool of it. Pure: it reads the answers of the
status route and formats findings. It calls no tool, since a tool may do something that can't be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tabrelay.cli.colours import Colours

MARKS: Final = {"ok": "ok  ", "note": "note", "bad": "BAD ", "missing": "TODO"}
COLOURS: Final = {"ok": "green", "note": "dim", "bad": "red", "missing": "yellow"}
ADVICE_COLUMN: Final = 17
SHOWN_NAMES: Final = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """`bad` has to be fixed, `missing` is to be done before a call, `note` is information; `advice`: what to do.
    `help`: code of the entry in the reference of errors, or empty."""

    what: str
    state: Literal["ok", "note", "bad", "missing"]
    text: str
    advice: str = ""
    help: str = ""


def findings(statuses: Sequence[dict[str, Any]], program: str) -> Iterator[Finding]:
    """`statuses`: of the relays that answer, each with the pages that are `asking` to be paired."""
    rows = [row for status in statuses for row in status["servers"] if row["tools"]]
    # Tools of a worker answer without a page.
    ready = [row for state in ("online", "idle") for row in rows if row.get("state") == state]
    if ready:
        names = ", ".join(row["name"] for row in ready)
        row = ready[0]
        yield Finding(
            "call", "ok", f"A call would succeed: {names}", f"{program} call {row['name']} {row['tools'][0]['name']}"
        )
        return
    yield from _steps(statuses, program)


def _steps(statuses: Sequence[dict[str, Any]], program: str) -> Iterator[Finding]:
    if not statuses:
        advice = f"{program} demo, or for a page of your own: {program} serve NAME"
        yield Finding("call", "missing", "No relay runs.", advice, "TR302")
    rows = [row for status in statuses for row in status["servers"]]
    asking = [each for status in statuses for each in status["asking"]]
    online = [row["name"] for row in rows if row.get("state") == "online"]
    if online:
        text = f"{', '.join(online)} is online and offers no tool."
        yield Finding("call", "missing", text, "Offer one in its page: connect(…).offerTool(…)")
        return
    for each in asking:
        text = f"{each['origin']} waits for your approval to offer {each['server']}."
        advice = f"{program} pairs approve {each['code']}, if its page shows that code"
        yield Finding("call", "missing", text, advice, "TR429")
    if asking:
        return
    upstreams = [row["name"] for row in rows if row.get("connection") not in (None, "connected")]
    pages = [row["name"] for row in rows if row.get("connection") is None]
    for name in upstreams:
        advice = f"Fix what is reported above. Then: {program} reconnect {name}"
        yield Finding("call", "missing", f"{name} is not connected.", advice, "TR110")
    # The pages that `tabrelay dev` serves.
    apps = " or ".join(f"{status['app_url']}/" for status in statuses if status.get("app_url"))
    if pages:
        more = " or another one" if len(pages) > SHOWN_NAMES else ""
        advice = f"Open {apps}" if apps else f"Open the page that offers {' or '.join(pages[:SHOWN_NAMES])}{more}"
        yield Finding("call", "missing", "No page is connected.", advice, "TR101")
    elif not upstreams:
        advice = f"Open a page that connects. The demo's: {program} demo" if statuses else "Open it in a browser"
        advice = f"Open {apps}" if apps else advice
        yield Finding("call", "missing", "No page is connected.", advice, "TR101")


def text(found: Sequence[Finding], colour: Colours, program: str = "tabrelay") -> str:
    lines = []
    for finding in found:
        code = f" [{finding.help}]" if finding.help else ""
        lines.append(f"{colour(COLOURS[finding.state], MARKS[finding.state])}  {finding.what:<10} {finding.text}{code}")
        if finding.advice:
            lines.append(f"{'':{ADVICE_COLUMN}}→ {finding.advice}")
    bad = sum(finding.state == "bad" for finding in found)
    missing = [finding for finding in found if finding.state == "missing"]
    lines.append("")
    if bad:
        lines.append(f"{bad} to fix.")
    if missing:
        lines.append("Missing for a call, in this order:")
        lines += [f"  {number}. {finding.text} {finding.advice}" for number, finding in enumerate(missing, 1)]
    if not bad and not missing:
        lines.append("All is well.")
    codes = list(dict.fromkeys(finding.help for finding in found if finding.help))
    if codes:
        lines.append(f"Help: {program} help {codes[0] if len(codes) == 1 else 'CODE, with a code in brackets'}")
    return "\n".join(lines)
