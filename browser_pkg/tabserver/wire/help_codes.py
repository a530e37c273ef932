"""Codes of errors for the reference and for `tabrelay help CODE`: by the reason of an error, else by its JSON-RPC code.

A code is stable: programs and pages quote it, so it is never given to another error. docs/reference/errors.md has an
entry for each, and a test compares both. Codes of commands are given where commands raise their errors, those of pages
in `js/client/reasons.js`. It does not build errors.
"""

from __future__ import annotations

from typing import Any, Final

BY_REASON: Final[dict[str, str]] = {
    # -- a call has no result
    "server_offline": "TR101",
    "browser_gone": "TR102",
    "timeout": "TR103",
    "busy": "TR104",
    "result_too_large": "TR105",
    "relay_unavailable": "TR106",
    "draining": "TR106",
    "unknown_server": "TR107",
    "bad_answer": "TR108",
    "upstream_gone": "TR109",
    "upstream_failed": "TR110",
    "internal": "TR111",
    "deadline": "TR112",
    "cancelled": "TR114",
    "refused_in_console": "TR115",
    # -- the tab
    "tab_frozen": "TR121",
    "tab_silent": "TR122",
    "tab_left": "TR123",
    "tab_gone": "TR124",
    "tab_lacks_it": "TR125",
    "approval_unseen": "TR126",
    "approval_busy": "TR127",
    "refused": "TR128",
    "approval_timeout": "TR129",
    # -- the tool
    "invalid_arguments": "TR131",
    "invalid_result": "TR132",
    # -- the message
    "invalid_request": "TR141",
    "bad_report": "TR141",
    "parse_error": "TR142",
    "invalid_params": "TR143",
    "method_not_found": "TR144",
    "too_deep": "TR145",
    "too_large": "TR146",
    "duplicate_id": "TR147",
    "header_mismatch": "TR148",
    "unsupported_version": "TR149",
    # -- the HTTP request
    "unauthorized": "TR201",
    "forbidden": "TR202",
    "rate_limited": "TR203",
    "not_found": "TR204",
    "method_not_allowed": "TR205",
    "content_type": "TR206",
    "content_encoding": "TR207",
    "not_acceptable": "TR208",
    "no_session": "TR209",
    "session_not_found": "TR210",
    "already_initialized": "TR211",
    "too_many_sessions": "TR212",
    "unknown_event": "TR213",
    "conflict": "TR214",
    # -- a page that wants to offer a server
    "taken": "TR221",
    "reserved": "TR222",
    "configured": "TR223",
    "bad_name": "TR224",
    "subprotocol": "TR225",
    "hello": "TR226",
    # -- routes of the relay
    "expired": "TR231",
    "unknown": "TR231",
    "pairing_refused": "TR232",
    "not_stored": "TR233",
    "wrong_authority": "TR234",
    "unknown_key": "TR235",
    "in_use": "TR236",
    "too_many": "TR237",
    "unknown_call": "TR238",
    "assets_missing": "TR239",
    "packages_damaged": "TR240",
    "not_capturing": "TR241",
    "truncated": "TR242",
    "not_asked": "TR243",
    "unknown_held": "TR244",
    "faults_off": "TR245",
}
# JSON-RPC, MCP and, from -33000 on, MCP over ACP. -31… are the relay's own, whose errors have a reason.
BY_CODE: Final[dict[int, str]] = {
    -32700: "TR142",
    -32600: "TR141",
    -32601: "TR144",
    -32602: "TR143",
    -32603: "TR113",
    -32800: "TR114",
    -32020: "TR148",
    -32021: "TR150",
    -32022: "TR149",
    -32002: "TR151",
    -33000: "TR104",
    -33001: "TR512",
    -33002: "TR513",
}


def with_help(code: int, data: Any) -> Any:
    """The `data` of an error with the member `help`. Data of another type, and data that has it, stay unchanged."""
    if data is None:
        return {"help": BY_CODE[code]} if code in BY_CODE else None
    if not isinstance(data, dict) or "help" in data:
        return data
    reason = data.get("reason")
    found = BY_REASON.get(reason) if isinstance(reason, str) else None
    found = found or BY_CODE.get(code)
    return {**data, "help": found} if found else data
