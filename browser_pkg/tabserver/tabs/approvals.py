"""User approval of tool calls: which calls need it, the questions that are open, and approvals for a session.

The page that owns the tool shows the question; for a tool of the worker, the page in front does. Each question ends
once: with the user's decision, with the loss of its tab, or at a deadline. This module decides neither where a call
goes nor how a page shows a question, and it sends only through `Tab`.
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

# The relay operator's setting: as the page asks; at least destructive tools; all tools; no tool.
PAGE, DESTRUCTIVE, ALL, NONE = "page", "destructive", "all", "none"
MOST_OPEN: Final = 16
MOST_GRANTED: Final = 256
MOST_SHOWN: Final = 4000  # characters of a call's arguments
MOST_TEXT: Final = 200
ONCE, SESSION = "once", "session"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that may need the user's approval. `owner`: the tab that offers the tool; None: the worker does."""

    name: str
    item: Item
    owner: Tab | None
    caller: Caller
    arguments: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, ...]:
        """What an approval for the session covers. The key holds only what the relay has verified: the token and, in
        the handshake era, the session. A client chooses its own name, and modern requests belong to no session. A tool
        with another definition needs a new approval."""
        owner = self.owner.id if self.owner else ""
        # defence: a lasting approval is for one session
        # defence: what a session's permission is for
        # defence: a tool that is another one now asks again
        return self.caller.principal, self.caller.session or "", owner, self.name, fingerprint_of(self.item)

    def matches(self, name: str, item: Item, owner: Tab | None) -> bool:
        """Is this the tool that the user was asked about, with the same definition?"""
        return self.name == name and self.owner is owner and fingerprint_of(self.item) == fingerprint_of(item)

    def message(self, call: str) -> dict[str, Any]:
        text = json.dumps(self.arguments, ensure_ascii=False, indent=2)
        return {
            "t": "approve",
            "call": call,
            "name": self.name,
            "title": str(self.item.get("title") or "")[:MOST_TEXT],
            "description": str(self.item.get("description") or "")[:MOST_TEXT],
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
    """The open questions and the approvals of one worker."""

    def __init__(self, later: Later, timing: Timing = DEFAULTS) -> None:
        self._timing = timing
        self.operator = PAGE
        self._later = later
        self._open: dict[str, _OpenQuestion] = {}
        self._granted: dict[tuple[str, ...], None] = {}

    def is_required(self, name: str, item: Item, owner: Tab | None, tabs: Iterable[Tab]) -> bool:
        """Must the user approve calls of this tool? Checked before a question is built: nearly always the answer is
        no."""
        if self.operator == NONE:
            return False
        if self.operator == ALL or (self.operator == DESTRUCTIVE and is_destructive(item)):
            return True
        if owner is not None:
            return _asks_for(owner.approve, name, item)
        # The worker's tools belong to all pages: if one page wants to ask, the user is asked.
        rules = [tab.approve for tab in tabs] or [DESTRUCTIVE]
        return any(_asks_for(rule, name, item) for rule in rules)

    def is_granted(self, asked: ApprovalRequest) -> bool:
        """Has the user allowed this call for the session?"""
        return bool(self._granted) and asked.key in self._granted

    def ask(
        self,
        call: str,
        asked: ApprovalRequest,
        tab: Tab | None,
        go: Callable[[], None],
        deny: Callable[[RoutingError], None],
    ) -> None:
        """Ask the user in `tab`. Exactly one of `go` and `deny` is called, unless the question is dropped."""
        if tab is None:
            text = f'"{asked.name}" needs the user\'s approval, and no page is open that could ask for it.'
            deny(_not_run(text, "approval_unseen"))
        # defence: questions that are open
        elif len(self._open) >= MOST_OPEN:
            text = f'"{asked.name}" needs the user\'s approval, and {MOST_OPEN} other calls already wait for theirs.'
            deny(_not_run(text, "approval_busy", tab))
        else:
            question = self._open[call] = _OpenQuestion(asked, tab, go, deny)
            tab.send(asked.message(call))
            self._later(self._timing.approve_unseen_s * 1000, lambda: self._check_visible(call, question))
            self._later(self._timing.approve_s * 1000, lambda: self._expire(call, question))

    def receive_decision(self, tab: Tab, message: Mapping[str, Any]) -> None:
        """Handle the user's decision. Only the page that was asked may answer."""
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
        """The call has ended, so its question is withdrawn."""
        question = self._open.pop(call, None)
        if question is not None:
            question.tab.send({"t": "approve_over", "call": call})

    def left(self, tab: Tab) -> None:
        """The tab's page went away: its questions are denied."""
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
        """Deny a question whose tab is hidden: the user does not see it, and the agent would only wait."""
        if self._open.get(call) is question and not question.tab.is_visible:
            self.drop(call)
            tab, name = question.tab, question.asked.name
            text = f'"{name}" needs the user\'s approval in the tab {tab.label}, which is not visible.'
            question.deny(_not_run(f"{text} Bring it to the front and try again.", "approval_unseen", tab))

    def _expire(self, call: str, question: _OpenQuestion) -> None:
        # defence: a question without an answer
        if self._open.get(call) is question:
            self.drop(call)
            tab, name, wait_s = question.tab, question.asked.name, self._timing.approve_s
            text = f'The user did not allow "{name}" in the tab {tab.label} within {wait_s:g} s.'
            question.deny(_not_run(text, "approval_timeout", tab))


def is_destructive(tool: Item) -> bool:
    """Is the tool marked as destructive? MCP's default for unmarked tools (destructive) would make every tool ask."""
    hints = tool.get("annotations") or {}
    # defence: a destructive tool asks
    return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True


def _asks_for(rule: str | frozenset[str], name: str, tool: Item) -> bool:
    if isinstance(rule, frozenset):
        return name in rule
    return rule == ALL or (rule == DESTRUCTIVE and is_destructive(tool))


def read_approval_rule(value: Any) -> str | frozenset[str]:
    """The page's rule for its own tools: "destructive", "all", "none", or their names."""
    if isinstance(value, list):
        return frozenset(str(name) for name in value)
    return value if value in (ALL, NONE) else DESTRUCTIVE


def _not_run(text: str, reason: str, tab: Tab | None = None) -> RoutingError:
    return RoutingError(f"{text} It was not run.", reason, tab)
