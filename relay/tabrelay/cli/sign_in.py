"""Flags for tokens and OAuth, and the credentials made from them.

Used by the commands that are clients, and by the relay for its upstreams. The relay cannot ask a user, so its upstreams
need `tabrelay login` first. The OAuth flow is in `bridge.oauth`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tabrelay.cli.output import ExitWith

GRANTS = ("authorization_code", "client_credentials", "workload_identity", "enterprise_managed", "none")


def add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("token", "a server of the local relay needs none of these")
    token = group.add_mutually_exclusive_group()
    token.add_argument("--token-env", metavar="NAME", help="the token is in this environment variable")
    token.add_argument("--token-file", metavar="FILE", help="it is in this file")
    token.add_argument("--token-command", metavar="COMMAND", help="this command prints it")

    oauth = parser.add_argument_group("OAuth", "used when a server wants a token and none was given")
    oauth.add_argument(
        "--grant",
        choices=GRANTS,
        default=GRANTS[0],
        help="authorization_code (default): the user agrees in the browser; client_credentials: with --client-id and "
        "--client-secret-env or --client-key; workload_identity: with an assertion; enterprise_managed: with an ID "
        "token as assertion, --idp and --client-id; none: no OAuth",
    )
    oauth.add_argument("--client-id", metavar="ID", help="a client that is registered already")
    oauth.add_argument("--client-secret-env", metavar="NAME", help="its secret is in this environment variable")
    oauth.add_argument(
        "--client-auth", choices=("basic", "post"), default="basic", help="how the secret is sent (default basic)"
    )
    oauth.add_argument("--client-key", metavar="FILE", help="the client signs in with this private key (PEM)")
    assertion = oauth.add_mutually_exclusive_group()
    assertion.add_argument("--assertion-env", metavar="NAME", help="a JWT that says who you are: in this variable")
    assertion.add_argument("--assertion-file", metavar="FILE", help="it is in this file")
    assertion.add_argument("--assertion-command", metavar="COMMAND", help="this command prints it")
    oauth.add_argument("--idp", metavar="URL", help="the issuer of the identity provider that gave the ID token")
    oauth.add_argument("--idp-client-id", metavar="ID", help="this client at the identity provider")
    oauth.add_argument("--idp-client-secret-env", metavar="NAME", help="its secret there is in this variable")
    oauth.add_argument("--client-metadata-url", metavar="URL", help="where the client describes itself (CIMD)")
    oauth.add_argument("--scope", metavar="SCOPES", help="request these scopes, separated by spaces in one argument")
    oauth.add_argument("--issuer", metavar="URL", help="the authorization server that the client belongs to")
    oauth.add_argument(
        "--callback-port",
        type=int,
        metavar="PORT",
        help="port of the redirect URI (default 53682 or a free one)",
    )
    oauth.add_argument("--no-browser", action="store_true", help="only print the address, open no browser")


def credentials(
    args: argparse.Namespace, home: Path, header: str | None, env: Mapping[str, str], *, is_local: bool = False
) -> Any:
    """`header`: an Authorization that was given as a header. `is_local`: the target is the URL of a relay of this user.
    Raises CredentialsError."""
    from tabrelay.bridge.credentials import Command, Fixed, TokenFile, bearer
    from tabrelay.bridge.target import is_url

    if header is not None:
        if args.token_env or args.token_file or args.token_command:
            raise ExitWith("Two tokens were given: by --header Authorization, and by another flag.", help="TR314")
        return Fixed(bearer(header), "The server refused the token of --header.")
    if args.token_env:
        return Fixed(
            bearer(_variable(args.token_env, "--token-env", env)), f"The server refused the token in ${args.token_env}."
        )
    if args.token_file:
        return TokenFile(Path(args.token_file).expanduser(), "The server refused the token of --token-file.")
    if args.token_command:
        import shlex

        return Command(shlex.split(args.token_command))
    if is_local or not is_url(args.target):
        hint = "Was the relay started by another user, or with another --home?"
        return TokenFile(home / "token", hint, is_required=False)
    if args.grant == "none":
        return Fixed(None, "The server requires a token: see --token-env, --token-command and --header.")
    return _oauth(args, home, env)


def _oauth(args: argparse.Namespace, home: Path, env: Mapping[str, str]) -> Any:
    from tabrelay.config.specs import OAuthSpec

    named = {
        name: _variable(variable, f"--{name.replace('_', '-')}-env", env)
        for name in ("client_secret", "assertion", "idp_client_secret")
        if (variable := getattr(args, f"{name}_env"))
    }
    if args.grant == "client_credentials" and not (args.client_id and ("client_secret" in named or args.client_key)):
        raise ExitWith(
            "--grant client_credentials needs --client-id, and --client-secret-env or --client-key.", help="TR314"
        )
    if "client_secret" in named and args.client_id is None:
        raise ExitWith("--client-secret-env needs --client-id.", help="TR314")
    wanted = OAuthSpec(
        grant=args.grant,
        client_id=args.client_id,
        client_auth=args.client_auth,
        client_key=args.client_key,
        assertion_file=args.assertion_file,
        assertion_command=args.assertion_command,
        idp=args.idp,
        idp_client_id=args.idp_client_id,
        scope=args.scope,
        issuer=args.issuer,
        client_metadata_url=args.client_metadata_url,
        **named,
    )
    if fault := wanted.fault():
        raise ExitWith(f"The OAuth of these flags {fault[0]}; expected: {fault[1]}.", help="TR314")
    return _tokens(
        args.target,
        wanted,
        home,
        opens=not args.no_browser,
        allows_plain=args.allow_insecure_http,
        is_early=args.grant != "authorization_code",
        callback_port=args.callback_port,
    )


def _variable(name: str, flag: str, env: Mapping[str, str]) -> str:
    if not env.get(name):
        raise ExitWith(f"The environment has no variable {name}, which {flag} names.", help="TR314")
    return env[name]


class Unattended:
    """Credentials of the relay at one upstream: tokens that are stored or can be refreshed without the user."""

    def __init__(self, oauth: Any) -> None:
        self._oauth = oauth

    async def header(self) -> str | None:
        with _as_no_token():
            value: str | None = await self._oauth.header()
        return value

    def proof(self, authorization: str | None, method: str, url: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._oauth.proof(authorization, method, url)
        return found

    async def refused(self, used: str | None, response: Any) -> bool:
        from tabrelay.bridge.http import HttpAnswer

        with _as_no_token():
            is_other: bool = await self._oauth.refused(used, HttpAnswer(response, None))
        return is_other


@contextlib.contextmanager
def _as_no_token() -> Iterator[None]:
    from tabrelay.bridge.credentials import CredentialsError
    from tabrelay.peers.upstreams.transports.answering_client import NoToken

    try:
        yield
    except CredentialsError as problem:
        raise NoToken(str(problem)) from None


def for_relay(settings: Any, command: str, home: str) -> Callable[[Any], Any]:
    """`command`: what starts this program; `home`: its --home flag, for the advice in errors."""

    def sign_in(spec: Any) -> Unattended:
        import shlex

        files = "".join(f" -c {shlex.quote(str(Path(file).expanduser().absolute()))}" for file in settings.config)
        advice = f"it requires a sign-in: {command} login {spec.name}{home}{files}"
        return Unattended(for_upstream(spec, settings.home, advice=advice))

    return sign_in


def for_upstream(spec: Any, home: Path, *, advice: str | None = None, opens: bool = True) -> Any:
    """The credentials for a server of a configuration. `tabrelay stdio URL` finds the same tokens."""
    return _tokens(spec.url, spec.oauth, home, opens=opens, advice=advice)


def _tokens(url: str, wanted: Any, home: Path, *, opens: bool, allows_plain: bool = False, **more: Any) -> Any:
    """`wanted`: an OAuthSpec. `more`: arguments of `OAuth`."""
    from tabrelay.bridge.oauth.credentials import OAuth
    from tabrelay.bridge.oauth.show_url import show
    from tabrelay.bridge.oauth.token_store import OAuthStore

    def options() -> Any:
        from tabrelay.bridge.oauth.assertions import IdentityProvider
        from tabrelay.bridge.oauth.sdk_flow import TokenOptions

        idp = IdentityProvider(wanted.idp, wanted.idp_client_id, wanted.idp_client_secret) if wanted.idp else None
        return TokenOptions(
            url,
            wanted.grant,
            client_id=wanted.client_id,
            client_secret=wanted.client_secret,
            client_auth="client_secret_post" if wanted.client_auth == "post" else "client_secret_basic",
            scope=wanted.scope,
            issuer=wanted.issuer,
            metadata_url=wanted.client_metadata_url,
            allows_plain=allows_plain,
            client_key=None if wanted.client_key is None else _read(wanted.client_key, "The client key"),
            read_assertion=_assertion(wanted),
            identity_provider=idp,
        )

    names = (wanted.client_id or "", wanted.scope or "", wanted.issuer or "", *filter(None, [wanted.idp]))
    store = OAuthStore(home / "oauth", url, wanted.grant, *names)
    return OAuth(store, options, functools.partial(show, opens=opens), **more)


def _assertion(wanted: Any) -> Callable[[], Awaitable[str]] | None:
    """Reads the assertion anew for each token: it is short-lived."""
    if wanted.grant not in ("workload_identity", "enterprise_managed"):
        return None

    async def read() -> str:
        from tabrelay.bridge.credentials import output

        if wanted.assertion_file is not None:
            return _read(wanted.assertion_file, "The assertion")
        if wanted.assertion_command is not None:
            import shlex

            return await output(shlex.split(wanted.assertion_command), "The command of the assertion")
        return str(wanted.assertion)

    return read


def _read(file: str, what: str) -> str:
    from tabrelay.bridge.credentials import CredentialsError

    try:
        return Path(file).expanduser().read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise CredentialsError(f"{what} can't be read: {problem}.") from None
