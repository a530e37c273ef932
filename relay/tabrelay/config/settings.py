"""Relay settings: names, types, defaults and validation; from flags, environment (TABRELAY_*) and configuration files.

Read once and passed to constructors. No setting is a secret: tokens have their own file. Reads no file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tabserver.wire.limits import least_grace_s

KIB = 1024
MIB = 1024 * 1024
LOG_LEVELS = ("trace", "debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
DEFAULT_PORT = 4747
APPROVALS = ("page", "destructive", "all", "none")


class ConfigError(ValueError):
    """A setting that can't be used; the text names it and says what it should be."""


def default_home() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_path("tabrelay"))


def _setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field can be set as TABRELAY_<NAME>; lists are separated by commas, sizes are bytes."""

    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(DEFAULT_PORT, "port to listen on; 0 takes any free one")
    home: Path = field(default_factory=default_home, metadata={"help": "state directory: token, paired pages"})
    allow_hosts: tuple[str, ...] = _setting((), "additional host names of this relay")
    allow_origins: tuple[str, ...] = _setting((), "other origins whose pages may use this relay")
    public_url: str = _setting("", "public address of this relay behind a proxy, e.g. https://relay.example")
    trusted_proxies: tuple[str, ...] = _setting((), "addresses of proxies whose X-Forwarded-For and -Proto are used")
    oauth_issuer: str = _setting("", "authorization server whose access tokens are also accepted; needs public_url")
    oauth_keys: str = _setting("", "address of its keys (default: from its metadata)")
    servers: tuple[str, ...] = _setting((), "names that exist from the start, offline until a page connects")
    plain: tuple[str, ...] = _setting((), "servers whose pages may connect without a link and a token (loopback only)")
    instances: tuple[str, ...] = _setting((), "servers that keep all their browsers connected, not only the newest")
    static_tools: tuple[str, ...] = _setting((), "servers with tools for clients that read the tool list only once")
    config: tuple[str, ...] = _setting((), "configuration files: servers, and settings of the relay")
    bus: tuple[str, ...] = field(
        default=(),
        # An address from the environment may contain a password.
        repr=False,
        metadata={
            "help": "NATS servers (nats://… or tls://…) that connect several relays; each serves the browsers of all"
        },
    )
    bus_credentials: str = _setting("", "the file with this relay's credentials for the bus (.creds)")
    bus_ca: str = _setting("", "certificates of the bus's authority (PEM)")
    workers: int = _setting(1, "processes that share the port; more than one need a bus")
    bus_beat_s: float = _setting(2.0, "heartbeat of each relay on the bus; a relay that misses three is lost")
    watch: bool = _setting(False, "apply changes of the configuration files at once; without it, on SIGHUP")
    approve: str = _setting("page", "tools that ask in the browser before they run: page, destructive, all or none")
    no_auth: bool = _setting(False, "require no token (loopback only)")
    log_level: str = _setting("warning", "lowest level of messages on stderr")
    log_format: str = _setting("text", "format of messages on stderr: text or json")
    log_file: str = _setting("", "the log file (default: log/relay-PORT.log in the state directory); none for no file")
    log_max: int = _setting(2 * MIB, "size at which a log file is rotated")
    log_keep: int = _setting(4, "how many rotated log files are kept")
    call_log: str = _setting("", "the call log (default: log/calls-PORT.log in the state directory); none for no file")
    call_log_arguments: bool = _setting(False, "also write the arguments of calls into the call log")
    metrics: bool = _setting(True, "count calls, refusals and more, for /-/metrics")
    traces: bool = _setting(False, "send traces to an OpenTelemetry collector; OTEL_* variables configure it")
    inspect: bool = _setting(False, "capture calls for the console even if none is open, from the start")
    faults: bool = _setting(False, "let the console cut links and delay their messages, for tests (loopback only)")
    console_bytes: int = _setting(64 * MIB, "memory for captured calls; the oldest are removed first")
    console_rows: int = _setting(5000, "captured calls")
    console_entry: int = _setting(256 * KIB, "largest request, result or notice that is captured whole")
    console_rows_s: int = _setting(200, "calls captured per second; further calls are left out")
    console_linger_s: float = _setting(30.0, "capture ends this long after the last console was closed")
    metrics_servers: int = _setting(100, "servers with a separate label in the metrics; the others share one")
    open_browser: bool = _setting(True, "open the page when ready")
    json: bool = _setting(False, "print one JSON line instead of text")
    fast_lane: bool = _setting(  # style: ok, the name of a setting
        True, "answer plain calls on the fast path, if it supports this web server"
    )

    ping_interval_s: float = _setting(15.0, "WebSocket ping")
    ping_timeout_s: float = _setting(15.0, "a socket without a pong for this long is dead")
    abort_after_s: float = _setting(1.0, "a dead socket is cut if it does not close within this time")
    heartbeat_s: float = _setting(
        15.0, "after this time without a message, the relay sends an ack for the worker's watchdog"
    )
    hello_deadline_s: float = _setting(5.0, "the first frame of a new socket must arrive within this time")
    max_hello: int = _setting(4 * KIB, "largest first frame")
    grace_s: float = _setting(
        # defence: half-open: the grace is long enough for a worker to come back
        60.0,
        "a lost link and its calls are kept for this time; at least 2.5 x heartbeat_s + 15 s, or calls may be lost",
    )
    away_wait_s: float = _setting(10.0, "a new call waits this long for a browser that is away")
    call_deadline_s: float = _setting(300.0, "a call that takes longer is cancelled")
    keepalive_s: float = _setting(15.0, "interval of comment lines on an idle event stream")
    drain_s: float = _setting(20.0, "after a stop signal, running calls have this time to finish")
    drain_pause_s: float = _setting(
        2.0, "then browsers wait this long before they reconnect: at least the duration of a restart"
    )
    drain_spread_s: float = _setting(5.0, "then they reconnect at random times within this period")
    max_message: int = _setting(16 * MIB, "largest message on the link, after reassembly")
    max_part: int = _setting(64 * KIB, "larger messages are sent in slices of this size")
    max_header: int = _setting(64 * KIB, "largest HTTP request line and header")
    max_ahead: int = _setting(
        16 * KIB, "bytes that a client may send before its last request is answered; with more, its connection ends"
    )
    header_deadline_s: float = _setting(10.0, "the header of an HTTP request must be complete within this time")
    connection_idle_s: float = _setting(
        75.0, "an HTTP connection without a request is kept for this time: longer than clients and proxies keep theirs"
    )
    max_body: int = _setting(4 * MIB, "largest HTTP request body")
    body_deadline_s: float = _setting(30.0, "the body of an HTTP request must be complete within this time")
    body_budget: int = _setting(64 * MIB, "all HTTP bodies that are being read, together; and all WebSocket messages")
    call_budget: int = _setting(128 * MIB, "messages of all calls that have no answer yet, together")
    max_connections: int = _setting(1024, "open connections, HTTP and WebSocket together")
    max_json_depth: int = _setting(64, "levels of nesting in a client's message")
    max_values: int = _setting(200_000, "values in one message; a key or a list counts as two, 64 bytes of text as one")
    rate_s: float = _setting(200.0, "requests per second of one token, sustained; 0: any number")
    rate_burst: int = _setting(1000, "requests that one token may send at once")
    max_tools: int = _setting(256, "tools of one server")
    max_list: int = _setting(256 * KIB, "largest list (tools, resources, templates or prompts) of one server")
    max_description: int = _setting(8 * KIB, "largest description of a tool, resource or prompt")
    max_schema_depth: int = _setting(32, "levels of nesting in a tool's schema")
    catalogue_budget: int = _setting(
        32 * MIB, "memory for the tools, resources and prompts of all servers, including offline ones"
    )
    max_servers: int = _setting(512, "server names that the relay keeps")
    replay_bytes: int = _setting(32 * MIB, "replay buffer of a link, per direction")
    replay_messages: int = _setting(1024, "replay buffer of a link, per direction")
    replay_budget: int = _setting(256 * MIB, "all replay buffers together")
    send_queue: int = _setting(1 * MIB, "with more unsent bytes than this, as many must be sent within send_timeout_s")
    send_timeout_s: float = _setting(
        10.0, "if a send takes longer, the browser is disconnected because it reads too slowly"
    )
    in_flight_server: int = _setting(64, "running calls per server")
    in_flight_caller: int = _setting(
        16, "running calls per session; clients of 2026-07-28 have no sessions, and share the server's limit"
    )
    task_ttl_s: float = _setting(
        3600.0, "a task may run for this time, and its result is kept for the same time afterwards"
    )
    max_task_ttl_s: float = _setting(86_400.0, "longest time to live that a client can request for a task")
    max_tasks: int = _setting(256, "tasks of one server, including those whose result is kept")
    max_tasks_token: int = _setting(64, "tasks that one token may have on one server")
    task_budget: int = _setting(
        32 * MIB, "total size of the results of a server's tasks, in characters; and of the requests of running ones"
    )
    greet_s: float = _setting(1.0, "if a plain page does not answer the handshake, it is repeated after this time")
    park_s: float = _setting(600.0, "a call that asked its client a question waits this long for the answer")
    park_caller: int = _setting(16, "calls of one caller that wait for its answer to a question")
    max_questions: int = _setting(16, "open questions of a server during one call")
    max_questions_server: int = _setting(64, "open questions of a plain page or an upstream server")
    question_budget: int = _setting(4 * MIB, "total size of these questions, in characters")
    upstream_start_s: float = _setting(60.0, "an upstream must complete its handshake within this time")
    upstream_timeout_s: float = _setting(
        0.0, "deadline of calls to upstreams; 0: the value in the configuration of each"
    )
    session_idle_s: float = _setting(1800.0, "the memory of a handshake session is freed after this idle time")
    session_life_s: float = _setting(604_800.0, "a handshake session ends after this time without use")
    max_sessions: int = _setting(10_000, "handshake sessions at a time")
    max_sessions_token: int = _setting(1_000, "handshake sessions of one token, origin or user at a time")
    max_subscribed: int = _setting(16 * MIB, "URIs that all handshake sessions have subscribed to, together")
    kept_sessions: int = _setting(10_000, "sessions, and pinned tabs, whose state is kept over a restart")

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any], env: Mapping[str, str] | None = None, file: Mapping[str, Any] | None = None
    ) -> Settings:
        """``args``: values of the command line by field name; None or absent: not given."""
        env = os.environ if env is None else env
        values: dict[str, Any] = dict(file or {})
        for item in fields(cls):
            name = f"TABRELAY_{item.name.upper()}"
            if args.get(item.name) is not None:
                values[item.name] = args[item.name]
            elif env.get(name):
                sample = item.default if item.default is not MISSING else Path()
                values[item.name] = _parse(name, env[name], sample)
        return cls(**values)

    @classmethod
    def check(cls, name: str, value: Any) -> None:
        """Raises if this value is not valid for a setting in a configuration file."""
        if name == "bus" and isinstance(value, list):
            refuse_secrets(str(url) for url in value)
        item = next(item for item in fields(cls) if item.name == name)
        sample = item.default if item.default is not MISSING else ""
        if isinstance(sample, tuple):
            fits = isinstance(value, list) and all(isinstance(part, str) for part in value)
        elif isinstance(sample, float):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        else:
            fits = type(value) is type(sample)
        if not fits:
            raise ConfigError(f"{name} must be {_KINDS[type(sample)]}.")
        cls(**{name: value})

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", Path(self.home).expanduser())
        object.__setattr__(self, "log_level", self.log_level.lower())
        for item in fields(self):
            if isinstance(item.default, tuple):
                object.__setattr__(self, item.name, tuple(getattr(self, item.name)))
            elif isinstance(item.default, int | float) and getattr(self, item.name) < 0:
                raise ConfigError(f"{item.name} can't be negative.")
        # A name with an option is declared, like those in `servers`.
        named = (*self.servers, *self.plain, *self.instances, *self.static_tools)
        object.__setattr__(self, "servers", tuple(dict.fromkeys(named)))
        for option, what in (("static_tools", "static tools"), ("instances", "instances")):
            if both := set(self.plain) & set(getattr(self, option)):
                text = f"is open to plain pages, which do not support {what}. Choose one of the two."
                raise ConfigError(f'"{min(both)}" {text}')
        if self.log_format not in LOG_FORMATS:
            raise ConfigError(f"log_format must be one of {', '.join(LOG_FORMATS)}; got {self.log_format!r}.")
        if self.log_level not in LOG_LEVELS:
            raise ConfigError(f"log_level must be one of {', '.join(LOG_LEVELS)}; got {self.log_level!r}.")
        for name in ("oauth_issuer", "oauth_keys"):
            value = getattr(self, name)
            if value and not value.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
                raise ConfigError(f"{name} must begin with https://; got {value!r}.")
        self._check_bus()
        if self.oauth_issuer and not self.public_url:
            raise ConfigError("oauth_issuer needs public_url: a token is for an address, and clients must know it.")
        # defence: no-auth on loopback only
        if self.public_url and self.no_auth:
            raise ConfigError("A relay with a public_url can be reached from other computers: no_auth is not allowed.")
        if self.public_url and self.plain:
            raise ConfigError(
                "A relay with a public_url can be reached from other computers: --plain admits pages without a token."
            )
        # defence: faults not on a public relay
        if self.public_url and self.faults:
            raise ConfigError("A relay with a public_url can be reached from other computers: faults are not allowed.")
        if self.approve not in APPROVALS:
            raise ConfigError(f"approve must be one of {', '.join(APPROVALS)}; got {self.approve!r}.")
        if self.port > 65535:
            raise ConfigError(f"A port is a number from 0 to 65535; got {self.port}.")

    def _check_bus(self) -> None:
        for number, url in enumerate(self.bus, 1):
            if flaw := _flaw_in_bus_address(url):
                # No part of it is shown: in an address that can't be parsed, the password may be anywhere.
                raise ConfigError(
                    # defence: a bus's password in a wrong address
                    f"bus: address {number} of {len(self.bus)} {flaw}. It must be nats://HOST[:PORT] or "
                    "tls://HOST[:PORT]; from the environment also nats://USER:PASSWORD@HOST[:PORT], where neither has "
                    "a comma or any of / ? # [ ] in it. If yours has, put the credentials into a file: "
                    "--bus-credentials FILE"
                )
        for name in ("bus_credentials", "bus_ca"):
            path = getattr(self, name)
            if path and not Path(path).expanduser().is_file():
                raise ConfigError(f"{name}: there is no file {path}.")
        if self.workers < 1:
            raise ConfigError("workers must be at least 1.")

    def warnings(self) -> list[str]:
        """Warnings for combinations that work but may lose calls."""
        least_s = least_grace_s(self.heartbeat_s)
        if self.grace_s >= least_s:
            return []
        return [
            f"grace_s is {self.grace_s:g} and heartbeat_s is {self.heartbeat_s:g}, but a browser may need "
            f"{least_s:.0f} s to notice a dead connection and come back: its calls are lost then. Set grace_s to "
            f"{least_s:.0f} or more, or make heartbeat_s smaller."
        ]

    def check_whole(self) -> None:
        """Raises for invalid combinations of settings, once all of them are known."""
        if (self.bus_credentials or self.bus_ca) and not self.bus:
            raise ConfigError("There are credentials or certificates for a bus, and no bus: give --bus too.")
        if self.workers > 1 and not self.bus:
            raise ConfigError(
                "--workers needs --bus: each process holds the browsers that dialled it, and only over a bus can the "
                "others reach them. Start a NATS server, and add --bus nats://127.0.0.1:4222"
            )
        if self.workers > 1 and os.name != "posix":
            raise ConfigError(
                "--workers needs a system whose processes can share a port. Start several relays instead."
            )


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", tuple: "a list of strings"}


def _flaw_in_bus_address(url: str) -> str:
    """The flaw of a bus address, without any part of the address; empty if there is none."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its text contains the address
        return "can't be read"
    if parts.scheme not in ("nats", "tls"):
        return "does not begin with nats:// or tls://"
    if not parts.hostname:
        return "has no host"
    try:
        if parts.port == 0:
            return "has an invalid port"
    except ValueError:
        return "has an invalid port"
    return "has more after its host" if parts.path.strip("/") or parts.query or parts.fragment else ""


def refuse_secrets(urls: Iterable[str]) -> None:
    """All users can read command lines, and configuration files are copied: neither may contain a password."""
    # defence: a bus's password on a command line
    if any("@" in url for url in urls):
        raise ConfigError(
            "The bus's address can't have a user, password or token in it here, where others could read it. Put the "
            "whole address into the environment variable TABRELAY_BUS, or the credentials into a file: "
            "--bus-credentials FILE"
        )


def _parse(name: str, text: str, sample: Any) -> Any:
    """Read an environment value as the type of the setting's default."""
    if isinstance(sample, bool):
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise ConfigError(f"{name} must be 1 or 0; got {text!r}.")
    if isinstance(sample, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return type(sample)(text)
    except ValueError:
        kind = "a whole number" if isinstance(sample, int) else "a number"
        raise ConfigError(f"{name} must be {kind}; got {text!r}.") from None
