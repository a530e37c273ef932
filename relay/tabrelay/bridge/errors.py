"""JSON-RPC errors that the client gets when the bridge could not get an answer from the server.

-32001: the server refused. -32000: there was no usable answer. The texts name the server and the reason: users see
nothing else. Pure; retries are decided in `forwarder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tabrelay.bridge.messages import load
from tabrelay.observe.log_setup import redact

REFUSED: Final = -32001
FAILED: Final = -32000
UNPROVEN: Final = "UNPROVEN"  # code of a Failure: another program answers at the relay's address
# Codes of the reference.
GONE: Final = "TR501"
TIMED_OUT: Final = "TR502"
STATUS: Final = "TR503"
TOKEN: Final = "TR504"
UNUSABLE: Final = "TR505"
OTHER_PROGRAM: Final = "TR506"
ERROR_BODY: Final = 100_000
SHOWN_BODY: Final = 500


@dataclass(frozen=True, slots=True)
class BridgeFault:
    code: int
    text: str
    data: Any = None

    @property
    def error(self) -> dict[str, Any]:
        error = {"code": self.code, "message": self.text}
        return error if self.data is None else {**error, "data": self.data}


class Failure(Exception):
    """The exchange with the server failed. `is_delivered`: the server may have received the message."""

    def __init__(self, reason: str, code: str, *, is_delivered: bool, timeout_ms: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.is_delivered = is_delivered
        self.timeout_ms = timeout_ms


def of_failure(failure: Failure, where: str, advice: str = "") -> BridgeFault:
    data = {"reason": failure.reason, "code": failure.code, "help": OTHER_PROGRAM if failure.code == UNPROVEN else GONE}
    if failure.timeout_ms is not None:
        data["help"] = TIMED_OUT
        return BridgeFault(FAILED, f"upstream timed out after {failure.timeout_ms} ms: {where}", data)
    more = f". {advice}" if advice and not failure.is_delivered and failure.code != UNPROVEN else ""
    return BridgeFault(FAILED, f"upstream request failed: {where}: {failure.reason}{more}", data)


def of_status(status: int, body: bytes, where: str, hint: str = "", retry_after_s: float | None = None) -> BridgeFault:
    """A refusal. If the body is a JSON-RPC error, that error is passed on."""
    try:
        error = load(body)["error"]
        if isinstance(error["code"], int) and isinstance(error["message"], str):
            return BridgeFault(error["code"], error["message"], error.get("data"))
    except (ValueError, KeyError, TypeError):
        pass
    data = {"status": status, "body": shown(body), "help": TOKEN if status == 401 else STATUS}
    if retry_after_s is not None:
        data["retry_after_ms"] = round(retry_after_s * 1000)
    return BridgeFault(REFUSED, f"{where}: upstream returned {status}{f'. {hint}' if hint else ''}", data)


def of_token(body: bytes, where: str, hint: str) -> BridgeFault:
    """A second 401. Not only the server's text: the client must see that the token is the reason."""
    return BridgeFault(
        REFUSED, f"{where}: upstream returned 401. {hint}", {"status": 401, "body": shown(body), "help": TOKEN}
    )


def shown(body: bytes) -> str:
    """The beginning of a body, without secrets, since servers repeat what they got. It is cut by bytes first; a
    character that was cut in two is omitted."""
    return redact(body[: 4 * SHOWN_BODY].decode(errors="ignore")[:SHOWN_BODY])


def of_answer(text: str, where: str, code: str) -> BridgeFault:
    """The server's answer is not usable."""
    return BridgeFault(FAILED, f"{text}: {where}", {"reason": text, "code": code, "help": UNUSABLE})
