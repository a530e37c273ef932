"""Help for errors in HTTP responses: the code of the entry in the reference, in the body and as a link.

Errors of MCP are JSON-RPC messages, whose `data` has the code. All other routes answer with the JSON object that
`problem` makes: the reason for programs, a sentence for people, and the code. The header Link leads to the entry (RFC
8288, relation "help"). It does not decide what is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

from tabserver.wire.help_codes import BY_CODE, BY_REASON

ENTRIES: Final = "/-/docs/reference/errors/"


def problem(reason: str, message: str, **more: Any) -> dict[str, Any]:
    """`more`: further members, or another `help`."""
    return {"error": reason, "message": message, "help": BY_REASON[reason], **more}


def problem_response(
    status: int, reason: str, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    body = problem(reason, message, **more)
    return JSONResponse(body, status, headers={**(headers or {}), "Link": link_to(body["help"])})


def help_headers(reason: str, code: int) -> tuple[tuple[bytes, bytes], ...]:
    """The link for an error with this reason and JSON-RPC code."""
    found = BY_REASON.get(reason) or BY_CODE.get(code)
    return ((b"link", link_to(found).encode()),) if found else ()


def link_to(code: str) -> str:
    return f'<{ENTRIES}#{code.lower()}>; rel="help"'
