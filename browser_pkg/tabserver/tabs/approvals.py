"""Which calls a person must allow first, and the questions that are open: once, for the session, or not at all.

A question is shown by the page that owns the tool; for a tool of the worker, by the page in front. Here is decided
whether one is asked, how long it waits, and what the caller is told. Knows no port but through its tab.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..timing import DEFAULTS, Timing
from ..wire.frames import Caller
from .liveness import Later
from .offers import Item
from .routing import RoutingError
from .tab import Tab, fingerprint_of

# What the relay's operator says: as the page says; at least the destructive ones; all of them; none of them.
PAGE, DESTRUCTIVE, ALL, NONE = "page", "destructive", "all", "none"
MOST_OPEN: Final = 16
MOST_GRANTED: Final = 256
MOST_SHOWN: Final = 4000  # characters of a call's arguments
MOST_TEXT: Final = 200
ONCE, SESSION = "once", "session"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that may need somebody's word. `owner`: the tab that offers it, or None for the worker's own."""

    name: str
    item: Item
    owner: Tab | None
    caller: Caller
    arguments: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, ...]:
        """What a lasting approval is for. It names only what the relay has verified: the token and, in the handshake
        era, the session. A client chooses its own name, and modern requests belong to no session. A tool with another
        definition is asked about again."""
        owner = self.owner.id if self.owner else ""
        # defence: a lasting approval is for one session
        # defence: what a session's permission is for
        # defence: a tool that is another one now asks again
        return self.caller.principal, self.caller.session or "", owner, self.name, fingerprint_of(self.item)

    def matches(self, name: str, item: Item, owner: Tab | None) -> bool:
        """Is this what was asked about, and defined as it was then?"""
        return self.name == name and self.owner is owner and fingerprint_of(self.item) == fingerprint_of(item)

    def message(self, call: str) -> dict[str, Any]:
        text = json.dumps(self.arguments, ensure_ascii=False, indent=2)
        return {
            "t": "approve",
            "call": call,
            "name": self.name,
            "title": str(self.item.get("title") or "")[:MOST_TEXT],
            "arguments": text[:MOST_SHOWN],
            "more": max(0, len(text) - MOST_SHOWN),
            "destructive": is_destructive(self.item),
            "caller": {
                "client": str((self.caller.client or {}).get("name") or "")[:MOST_TEXT],
                "principal": self.caller.principal,
                "session": self.caller.session is not None,
            },
        }


@dataclass(frozen=True, slots=True, eq=False)
class _OpenQuestion:
    asked: ApprovalRequest
    tab: Tab
    go: Callable[[], None]
    deny: Callable[[RoutingError], None]


class Approvals:
    """One per worker."""

    def __init__(self, later: Later, timing: Timing = DEFAULTS) -> None:
        self.timing = timing
        self.operator = PAGE
        self._later = later
        self._open: dict[str, _OpenQuestion] = {}
        self._granted: dict[tuple[str, ...], None] = {}

    def is_required(self, name: str, item: Item, owner: Tab | None, tabs: Iterable[Tab]) -> bool:
        """Does anybody want to be asked about this tool? Said before there is a question: nearly always nobody does."""
        if self.operator == NONE:
            return False
        if self.operator == ALL or (self.operator == DESTRUCTIVE and is_destructive(item)):
            return True
        if owner is not None:
            return _asks_for(owner.approve, name, item)
        # The worker's tools belong to all pages: if one of them wants to be asked, somebody is.
        rules = [tab.approve for tab in tabs] or [DESTRUCTIVE]
        return any(_asks_for(rule, name, item) for rule in rules)

    def is_granted(self, asked: ApprovalRequest) -> bool:
        """Did somebody allow it before, for the session?"""
        return bool(self._granted) and asked.key in self._granted

    def ask(
        self,
        call: str,
        asked: ApprovalRequest,
        tab: Tab | None,
        go: Callable[[], None],
        deny: Callable[[RoutingError], None],
    ) -> None:
        """Exactly one of `go` and `deny` is called, unless the question is dropped."""
        if tab is None:
            text = f'"{asked.name}" needs the user\'s approval, and no page is open that could ask for it.'
            deny(_not_run(text, "approval_unseen"))
        # defence: questions that are open
        elif len(self._open) >= MOST_OPEN:
            text = f'"{asked.name}" needs the user\'s approval, and {MOST_OPEN} other calls wait for theirs already.'
            deny(_not_run(text, "approval_busy", tab))
        else:
            question = self._open[call] = _OpenQuestion(asked, tab, go, deny)
            tab.send(asked.message(call))
            self._later(self.timing.approve_unseen_s * 1000, lambda: self._check_visible(call, question))
            self._later(self.timing.approve_s * 1000, lambda: self._expire(call, question))

    def receive_decision(self, tab: Tab, message: Mapping[str, Any]) -> None:
        """What the user decided. Only the page that was asked may answer."""
        question = self._open.get(str(message.get("call")))
        # defence: only the tab that was asked answers
        if question is None or question.tab is not tab:
            return
        # defence: a question that was answered
        del self._open[str(message["call"])]
        decision = message.get("decision")
        if decision in (ONCE, SESSION):
            if decision == SESSION:
                self._grant(question.asked.key)
            question.go()
        else:
            text = f'The user refused "{question.asked.name}" in the tab {tab.label}.'
            question.deny(_not_run(text, "refused", tab))

    def drop(self, call: str) -> None:
        """Nobody waits for the call any more."""
        question = self._open.pop(call, None)
        if question is not None:
            question.tab.send({"t": "approve_over", "call": call})

    def left(self, tab: Tab) -> None:
        """The page went away with its questions."""
        for call, question in list(self._open.items()):
            if question.tab is tab:
                del self._open[call]
                text = f'The tab {tab.label} was closed or left before "{question.asked.name}" was allowed.'
                question.deny(_not_run(text, "approval_unseen", tab))

    def _grant(self, key: tuple[str, ...]) -> None:
        self._granted[key] = None
        while len(self._granted) > MOST_GRANTED:
            del self._granted[next(iter(self._granted))]

    def _check_visible(self, call: str, question: _OpenQuestion) -> None:
        """A question in a tab that nobody sees would only let the agent wait."""
        if self._open.get(call) is question and not question.tab.is_visible:
            self.drop(call)
            tab, name = question.tab, question.asked.name
            text = f'"{name}" needs the user\'s approval in the tab {tab.label}, which is not visible.'
            question.deny(_not_run(f"{text} Bring it to the front and try again.", "approval_unseen", tab))

    def _expire(self, call: str, question: _OpenQuestion) -> None:
        # defence: a question that nobody answers
        if self._open.get(call) is question:
            self.drop(call)
            tab, name, wait_s = question.tab, question.asked.name, self.timing.approve_s
            text = f'Nobody allowed "{name}" in the tab {tab.label} within {wait_s:g} s.'
            question.deny(_not_run(text, "approval_timeout", tab))


def is_destructive(tool: Item) -> bool:
    """Marked as such. MCP's default for what nobody marked would have every tool ask."""
    hints = tool.get("annotations") or {}
    # defence: a destructive tool asks
    return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True


def _asks_for(rule: str | frozenset[str], name: str, tool: Item) -> bool:
    if isinstance(rule, frozenset):
        return name in rule
    return rule == ALL or (rule == DESTRUCTIVE and is_destructive(tool))


def read_approval_rule(value: Any) -> str | frozenset[str]:
    """What a page says about its own tools: destructive, all, none, or their names."""
    if isinstance(value, list):
        return frozenset(str(name) for name in value)
    return value if value in (ALL, NONE) else DESTRUCTIVE


def _not_run(text: str, reason: str, tab: Tab | None = None) -> RoutingError:
    return RoutingError(f"{text} It was not run.", reason, tab)
