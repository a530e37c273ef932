"""A question in a background tab: the mark in the title, and the notification where the user has allowed it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.nodejs import node
from tests.support.paths import ROOT

MODULE = ROOT / "browser_pkg" / "tabserver" / "js" / "client" / "attention.js"
PAGE = """
class Page extends EventTarget { hidden = true; title = "Notes"; location = { host: "localhost" }; }
class Notification extends EventTarget {
  static permission = "default";
  constructor(title, { body }) {
    super();
    if (globalThis.isMobile) throw new TypeError("Illegal constructor");
    shown.push(`${title}: ${body}`);
  }
  close() { shown.push("closed"); }
}
const shown = [];
Object.assign(globalThis, { document: new Page(), Notification });
const become = (hidden) => { document.hidden = hidden; document.dispatchEvent(new Event("visibilitychange")); };
const seen = () => [document.title, ...shown];
"""


async def seen(script: str) -> Any:
    start = f'{PAGE} const {{ requestAttention }} = await import("{MODULE.as_uri()}"); const all = [];'
    ended = await node("--input-type=module", "--eval", f"{start} {script} console.log(JSON.stringify(all));")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


async def test_a_background_tab_marks_its_title_until_it_is_visible() -> None:
    script = "requestAttention('Approve?'); all.push(seen()); become(false); all.push(seen());"
    assert await seen(script) == [["(!) Notes"], ["Notes"]]


async def test_the_mark_goes_when_the_question_ends_and_another_title_stays() -> None:
    script = """
    const end = requestAttention("Approve?"); end(); end(); all.push(seen());
    const again = requestAttention("Approve?"); document.title = "Inbox"; again(); all.push(seen());"""
    assert await seen(script) == [["Notes"], ["Inbox"]]


async def test_a_visible_tab_is_left_alone() -> None:
    assert await seen("document.hidden = false; requestAttention('Approve?')(); all.push(seen());") == [["Notes"]]


@pytest.mark.parametrize(
    ("set_up", "expected"),
    [
        ("", []),
        ("Notification.permission = 'granted'; globalThis.isMobile = true;", []),
        ("Notification.permission = 'granted';", ["Tabrelay: Approve? (localhost)", "closed"]),
    ],
)
async def test_a_notification_is_shown_only_with_permission(set_up: str, expected: list[str]) -> None:
    assert await seen(f"{set_up} requestAttention('Approve?')(); all.push(shown);") == [expected]
