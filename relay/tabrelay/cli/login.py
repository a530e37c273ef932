"""`tabrelay login`: signs in at a server of the configuration with OAuth, in the browser.

The token is stored in the state directory, where the relay finds and refreshes it. A running relay is asked to
reconnect.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tabrelay.cli import flags, relay_choice, running_relay, sign_in
from tabrelay.cli.output import FAILED, OK, ExitWith
from tabserver.wire import methods

TIMEOUT_S = 30.0


def add(commands: Any) -> None:
    about = "Sign in at a server of the configuration, in the browser. The relay keeps the token and refreshes it."
    parser = flags.add_command(commands, "login", about, "tabrelay login search -c tabrelay.toml")
    parser.add_argument("server", metavar="NAME", help="the server's name")
    flags.config_flag(parser)
    parser.add_argument("--no-browser", action="store_true", help="only print the address, open no browser")
    flags.address_flags(parser)
    parser.set_defaults(run=_login)


def _login(args: argparse.Namespace) -> int:
    import asyncio

    settings, spec = _find(args)
    where = asyncio.run(_sign_in(spec, settings.home, opens=not args.no_browser))
    print(f"Signed in at {where}.")
    for record in relay_choice.candidates(args, settings):
        if spec.name not in record.servers:
            continue
        try:
            running_relay.request_at(record.url, settings.home, f"/-/upstreams/{spec.name}/reconnect", method="POST")
            print(f"The relay at {record.url} connects to it again.")
        except ExitWith as problem:
            print(f"The relay at {record.url} was not notified: {problem} [{problem.help or 'TR302'}]", file=sys.stderr)
    return OK


def _find(args: argparse.Namespace) -> tuple[Any, Any]:
    from tabrelay.config.mistakes import ConfigMistakes
    from tabrelay.config.reader import effective
    from tabrelay.config.settings import ConfigError
    from tabrelay.config.specs import HttpSpec

    given = {**vars(args), "server": None}
    try:
        settings, config = effective(given)
    except (ConfigError, ConfigMistakes) as problem:
        raise ExitWith(str(problem), FAILED, help="TR309") from None
    spec = config.servers.get(args.server)
    if not config.programs:
        raise ExitWith(f"Name the file that has the server: tabrelay login {args.server} -c FILE")
    if spec is None:
        raise ExitWith(f'No server of the configuration is called "{args.server}".', FAILED, help="TR307")
    if not isinstance(spec, HttpSpec):
        raise ExitWith(f'"{args.server}" is not at a URL, so there is nowhere to sign in.', FAILED, help="TR314")
    if not spec.may_sign_in:
        raise ExitWith(
            f'"{args.server}" has an Authorization header, or oauth = false, in its configuration.',
            FAILED,
            help="TR314",
        )
    return settings, spec


async def _sign_in(spec: Any, home: Any, *, opens: bool) -> str:
    """Sends a request to the server; its refusal names the authorization server. Returns the server's URL."""
    import httpx2

    from tabrelay.bridge.credentials import CredentialsError
    from tabrelay.bridge.http import HttpAnswer
    from tabrelay.bridge.target import parse_url

    oauth = sign_in.for_upstream(spec, home, opens=opens)
    where = parse_url(spec.url, allows_plain=True).shown
    headers = {**dict(spec.headers), "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": methods.PING}
    try:
        async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
            for is_last in (False, False, True):  # with another token, and with the nonce that the server wants
                used = await oauth.header()
                more = {} if used is None else {"Authorization": used, **oauth.proof(used, "POST", spec.url)}
                async with http.stream("POST", spec.url, json=body, headers=more) as response:
                    if response.status_code not in (401, 403):
                        return where
                    if is_last or not await oauth.refused(used, HttpAnswer(response, None)):
                        break
    except CredentialsError as problem:
        raise ExitWith(f"{where}: {problem}", FAILED, help="TR314") from None
    except httpx2.HTTPError as problem:
        raise ExitWith(
            f"{where} does not answer: {str(problem) or type(problem).__name__}", FAILED, help="TR314"
        ) from None
    raise ExitWith(f"{where} refused the token that was just issued for it.", FAILED, help="TR314")
