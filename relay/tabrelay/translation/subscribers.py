"""Log levels, resource subscriptions and notification sinks of all callers that share one server connection.

The server has one log level and one set of subscriptions: the union of what the callers set. Each caller receives only
what it asked for. Sends nothing to the server and knows no transport.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Set
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Notice
from tabrelay.payloads.list_checks import MAX_URI
from tabrelay.translation import messages
from tabserver.wire import jsonrpc, methods

MAX_SUBSCRIPTIONS: Final = 256  # of one caller
MAX_URIS: Final = 4096  # of all callers of one server
MAX_PARSED: Final = 64 * 1024  # characters of a notification that is parsed; of a longer one only the method is read
MAX_WRITTEN: Final = 6 * MAX_URI + 16  # characters of the member `uri` and what ends the message
_URI: Final = re.compile(r'"uri":(?P<uri>"(?:[^"\\]|\\.)*+")(?:,|\}\})')
MAX_ANNOUNCED: Final = 16 * 1024  # characters of a notification to many callers; a longer one loses its other params


def read_notification(text: str) -> dict[str, Any] | None:
    """A notification that the relay has written, for `announce`. Of a long one only the method, and the URI of a
    resource: `announce` needs no more. None if there is no way to tell what it is. Raises ValueError if a short one is
    JSON that orjson refuses."""
    whole = text
    # defence: loop time: long notifications of a modern server are not parsed
    if len(text) > MAX_PARSED:
        head, found, _ = text[:MAX_PARSED].partition(',"params":')  # its quotes can't be in the method's string
        if not found:
            return None
        text = head + "}"
    message = orjson.loads(text)
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return None
    if message["method"] == methods.RESOURCES_UPDATED and text is not whole:
        message["params"] = {"uri": _uri_of_long(whole, len(text) - 1 + len(',"params":'))}
    return message


def _uri_of_long(text: str, params: int) -> str | None:
    """The URI of a long update of a resource, if it is the first or the last of the params, which begin here."""
    at = params + 1 if text.startswith('{"uri":"', params) else text.rfind('"uri":"', -MAX_WRITTEN)
    found = None if at < 0 else _URI.match(text[at : at + MAX_WRITTEN])
    if found is None or not (at == params + 1 or at + found.end() == len(text)):
        return None
    uri: str = orjson.loads(found["uri"])
    return uri


class Subscribers:
    """The callers of one server, by channel."""

    def __init__(self) -> None:
        self._sinks: dict[str, Callable[[Notice], None]] = {}
        self._levels: dict[str, str] = {}
        self._has_chosen_level = False  # has any caller ever set one?
        self._subscribers: dict[str, set[str]] = {}
        self._counts: Counter[str] = Counter()  # subscriptions of each caller

    @property
    def level(self) -> str | None:
        """The most verbose level that a caller set."""
        return min(self._levels.values(), key=methods.LOG_LEVELS.index, default=None)

    @property
    def uris(self) -> list[str]:
        return list(self._subscribers)

    @property
    def is_empty(self) -> bool:
        """Is there no listener?"""
        return not self._sinks

    def listen(self, channel: str, sink: Callable[[Notice], None]) -> None:
        self._sinks[channel] = sink

    def clear_listeners(self) -> None:
        """Remove all sinks."""
        self._sinks.clear()

    def leave(self, channel: str) -> list[str]:
        """A caller is gone. Returns the URIs that have no subscriber left."""
        self._sinks.pop(channel, None)
        self._levels.pop(channel, None)
        return [uri for uri in self.uris if self.unsubscribe(channel, uri)]

    def level_of(self, channel: str) -> str | None:
        return self._levels.get(channel)

    def set_level(self, channel: str, level: str) -> None:
        self._levels[channel] = level
        self._has_chosen_level = True

    def wants_level(self, channel: str, params: object) -> bool:
        """Does the level of this caller include this log message?"""
        level = self._levels.get(channel)
        return level is None or messages.is_level_enabled(params, level)

    def sinks_for_level(self, params: object, default: str) -> list[Callable[[Notice], None]]:
        """The listening callers whose level includes this log message. `default` is the level of those that set none,
        once the server has the level of another caller."""
        unset = default if self._has_chosen_level else methods.LOG_LEVELS[0]
        return [
            sink
            for channel, sink in self._sinks.items()
            if messages.is_level_enabled(params, self._levels.get(channel, unset))
        ]

    def refusal(self, channel: str, uri: str) -> str | None:
        """Why this caller can't subscribe to the URI; None if it can."""
        if len(uri) > MAX_URI:
            return f"The URI has {len(uri):,} characters, and at most {MAX_URI:,} can be subscribed to."
        if channel in self._subscribers.get(uri, ()):
            return None
        # defence: bounds: subscriptions of one caller
        if self._counts[channel] >= MAX_SUBSCRIPTIONS:
            return f"This session has {MAX_SUBSCRIPTIONS} subscriptions already. Unsubscribe from one first."
        # defence: bounds: subscriptions of all callers
        if uri not in self._subscribers and len(self._subscribers) >= MAX_URIS:
            return f"Clients of this server have subscribed to {MAX_URIS:,} resources already. Try again later."
        return None

    def subscribe(self, channel: str, uri: str) -> bool:
        """True for the first subscription to this resource. Call `refusal` first."""
        channels = self._subscribers.setdefault(uri, set())
        if channel not in channels:
            channels.add(channel)
            self._counts[channel] += 1
        return len(channels) == 1

    def unsubscribe(self, channel: str, uri: str) -> bool:
        """True if the resource has no subscriber left."""
        channels = self._subscribers.get(uri, set())
        if channel in channels:
            channels.discard(channel)
            self._counts[channel] -= 1
            if not self._counts[channel]:
                del self._counts[channel]
        if not channels:
            self._subscribers.pop(uri, None)
        return not channels

    def announce(self, message: dict[str, Any]) -> None:
        """List changes go to all callers, a resource update to its subscribers; other notifications are dropped."""
        method, params = message["method"], message.get("params")
        uri = params.get("uri") if isinstance(params, dict) else None
        if method.endswith("/list_changed"):
            channels: Set[str] = self._sinks.keys()
            brief = jsonrpc.notification(method)
        elif method == methods.RESOURCES_UPDATED and isinstance(uri, str) and len(uri) <= MAX_URI:
            channels, brief = self._subscribed_to(uri), jsonrpc.notification(method, {"uri": uri})
        else:
            return
        text = messages.text(message)
        # Each caller gets its own copy.
        # defence: loop time: notifications for many callers
        notice = Notice(text if text is not None and len(text) <= MAX_ANNOUNCED else messages.text(brief) or "")
        for sink in [sink for channel, sink in self._sinks.items() if channel in channels]:
            sink(notice)

    def _subscribed_to(self, uri: str) -> Set[str]:
        """The channels that subscribed to this resource."""
        found: set[str] = set()
        for wanted, channels in self._subscribers.items():
            if messages.covers((wanted,), uri):
                found |= channels
        return found
