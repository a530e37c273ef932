"""Error tree of the relay: every error that a caller can get, with its HTTP status and JSON-RPC code.

The relay's codes are outside the range that JSON-RPC and MCP reserve. `delivered` is what an agent needs to know before
it tries again: "no" means that the tool certainly did not run, "unknown" that it may have run. Failures at run time are
HTTP 200 with a JSON-RPC error, because clients lose code and data on any other status. Faces encode the errors.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from tabserver.wire import jsonrpc, methods

# What a client can do whose call took too long.
TASKS_HINT: Final = (
    "Clients that support tasks get the results of such calls later, from tools that allow it "
    '(@tool(task=True), offerTool({ task: "optional" })). All others need a longer call_deadline_s of the relay.'
)

Delivered = Literal["no", "unknown"]


class RelayError(Exception):
    """Root. Not raised itself."""

    status: int = 200
    code: int = jsonrpc.INTERNAL_ERROR
    reason: str = "internal"
    delivered: Delivered = "no"
    retryable: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        # It may quote a page or a server, and must be valid in JSON and in the log.
        if not message.isascii():
            from tabserver.wire.frames import well_formed  # not needed to start `tabrelay stdio`

            message = well_formed(message)
        self.message = message
        super().__init__(message)
        self.retry_after_ms = retry_after_ms

    def data(self, server: str | None) -> dict[str, Any]:
        """The `data` member, of the same shape for every error of the relay."""
        data: dict[str, Any] = {"reason": self.reason, "delivered": self.delivered, "retryable": self.retryable}
        if server is not None:
            data["server"] = server
        if self.retry_after_ms is not None:
            data["retry_after_ms"] = self.retry_after_ms
        return data


class ServerOffline(RelayError):
    """The name is known, but no peer was connected within the waiting time."""

    code = -31010
    reason = "server_offline"
    retryable = True


class BrowserGone(RelayError):
    """The browser disconnected while it had the call; whether the tool ran is unknown."""

    code = -31011
    reason = "browser_gone"
    delivered = "unknown"


class DeadlinePassed(RelayError):
    """No answer within the call's deadline; a cancel was sent."""

    code = -31012
    reason = "timeout"
    delivered = "unknown"


class Busy(RelayError):
    """A queue or the number of calls in flight is at its limit."""

    code = -31013
    reason = "busy"
    retryable = True


class ResultTooLarge(RelayError):
    """The result is larger than the limit."""

    code = -31014
    reason = "result_too_large"
    delivered = "unknown"


class RelayUnavailable(RelayError):
    """The relay is shutting down."""

    code = -31015
    reason = "relay_unavailable"
    retryable = True


class UnknownServer(RelayError):
    """No server of that name was ever declared, paired or seen (or this token may not see it)."""

    status = 404
    code = -31016
    reason = "unknown_server"


class BadAnswer(RelayError):
    """The server answered with something that is not a JSON-RPC response to this request."""

    code = jsonrpc.INTERNAL_ERROR
    reason = "bad_answer"
    delivered = "unknown"


class UpstreamGone(RelayError):
    """The connection to an upstream was lost while it had the call; whether the tool ran is unknown."""

    code = -31017
    reason = "upstream_gone"
    delivered = "unknown"


class UpstreamFailed(RelayError):
    """An upstream answered with something that is not MCP: an HTTP error, a page. `delivered` varies."""

    code = -31018
    reason = "upstream_failed"
    delivered = "unknown"


class BadRequest(RelayError):
    """The client's HTTP request or message is invalid; states the violated rule. The one class whose status varies."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: int = jsonrpc.INVALID_REQUEST,
        reason: str = "invalid_request",
        extra: dict[str, Any] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.reason = reason
        self.extra = extra or {}
        self.headers = headers

    def data(self, server: str | None) -> dict[str, Any]:
        return {**super().data(server), **self.extra}


def with_unknown_delivery(error: RelayError) -> RelayError:
    """The error for a call that was sent before and could not be sent again: nothing was sent this time, but it may
    have run the first time."""
    if error.delivered == "unknown":
        return error
    return BrowserGone("The browser may have received this call before. Whether it ran is unknown.")


def not_own_server(server: str) -> BadRequest:
    """A page calls a server that another origin, a child process or a URL offers."""
    text = f'This page may call only servers that pages of its own origin offer now. "{server}" is not one of them.'
    return BadRequest(text, status=403, reason="forbidden")


def took_too_long(server: str, method: str, limit_s: float) -> DeadlinePassed:
    text = f'Server "{server}" did not answer "{method}" within {limit_s:g} s.'
    return DeadlinePassed(f"{text} {TASKS_HINT}" if method == methods.TOOLS_CALL else text)
