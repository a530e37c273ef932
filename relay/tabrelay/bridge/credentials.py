"""Credentials of the bridge: the value of the Authorization header, and its renewal when the server refuses it.

Three simple sources: a fixed value, a file, a program that prints a token. OAuth is in `oauth`. Every token that is
used is removed from logs and errors from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from tabrelay.bridge.http import HttpAnswer
from tabrelay.observe.log_setup import add_secret

COMMAND_S: Final = 30.0
LONGEST_TOKEN: Final = 16_384


class CredentialsError(Exception):
    """There is no usable token; the text gives advice."""


class Credentials(Protocol):
    """`hint`: advice for the user when the server refuses."""

    hint: str

    async def prepare(self) -> None:
        """Called before the first message, to fail early. Raises CredentialsError."""

    async def header(self) -> str | None:
        """The header's value, valid now. Raises CredentialsError."""

    def proof(self, authorization: str | None, method: str, url: str) -> Mapping[str, str]:
        """More headers for one request with this Authorization: the proof of a key, if the token is bound to one."""

    async def refused(self, used: str | None, answer: HttpAnswer) -> bool:
        """The server refused the header. True: there is another one now. Raises CredentialsError."""


class UnboundToken:
    """A token that any request may carry."""

    def proof(self, authorization: str | None, method: str, url: str) -> Mapping[str, str]:
        return {}


class Fixed(UnboundToken):
    """The user's value, or none."""

    def __init__(self, value: str | None, hint: str) -> None:
        self._value = value
        self.hint = hint

    async def prepare(self) -> None:
        """Nothing to prepare."""

    async def header(self) -> str | None:
        return self._value

    async def refused(self, used: str | None, answer: HttpAnswer) -> bool:
        return False


class TokenFile(UnboundToken):
    """A token in a file, such as the relay's: read each time, since it may change."""

    def __init__(self, path: Path, hint: str, *, is_required: bool = True) -> None:
        self._path = path
        self._is_required = is_required
        self.hint = hint

    async def prepare(self) -> None:
        if self._is_required:
            await self.header()

    async def header(self) -> str | None:
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as problem:
            if not self._is_required and isinstance(problem, FileNotFoundError):
                return None  # the relay makes the file when it starts, which may be later
            raise CredentialsError(f"The token file can't be read: {problem}.") from None
        return bearer(token)

    async def refused(self, used: str | None, answer: HttpAnswer) -> bool:
        return await self.header() != used


class Command(UnboundToken):
    """The output of the user's program, which is run again when its token was refused."""

    hint = "The token of --token-command was refused twice."

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)
        self._value: str | None = None
        self._lock = asyncio.Lock()

    async def prepare(self) -> None:
        await self.header()

    async def header(self) -> str | None:
        async with self._lock:
            if self._value is None:
                self._value = bearer(await output(self._argv, "--token-command"))
            return self._value

    async def refused(self, used: str | None, answer: HttpAnswer) -> bool:
        async with self._lock:
            if self._value == used:  # otherwise another message has renewed it
                self._value = bearer(await output(self._argv, "--token-command"))
        return True


async def output(argv: Sequence[str], flag: str) -> str:
    """What the user's program prints. Raises CredentialsError."""
    name = argv[0]
    try:
        # It does not inherit stdin, which belongs to the client.
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
    except OSError as problem:
        raise CredentialsError(f"{flag} {name} can't be started: {problem.strerror}.") from None
    try:
        async with asyncio.timeout(COMMAND_S):
            out, _ = await process.communicate()
    except TimeoutError:
        raise CredentialsError(f"{flag} {name} printed no token within {COMMAND_S:.0f} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise CredentialsError(f"{flag} {name} failed with code {process.returncode}.")
    return out.decode(errors="replace").strip()


def bearer(token: str) -> str:
    """Adds the scheme to a bare token; a complete header value stays."""
    scheme, _, rest = token.partition(" ")
    is_whole = bool(rest) and scheme.isalpha()
    if not token or len(token) > LONGEST_TOKEN or not token.isascii() or not token.isprintable():
        raise CredentialsError("This is not a token: it is empty, too long, or not one line of ASCII characters.")
    if not is_whole and " " in token:
        raise CredentialsError("This is not a token: it contains a blank.")
    add_secret(rest if is_whole else token)
    return token if is_whole else f"Bearer {token}"
