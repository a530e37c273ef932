"""Known MCP clients: the location of their configuration files on each system, and the format of their entries.

A new client is one more value in `CLIENTS`. Reading and writing the files is in `file`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class UserFolders:
    """The user's directories on this computer."""

    home: Path
    platform: str = sys.platform
    roaming: Path | None = None
    config: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, env: Mapping[str, str] | None = None) -> UserFolders:
        env = os.environ if env is None else env
        roaming, config = env.get("APPDATA"), env.get("XDG_CONFIG_HOME")
        home = Path(env["HOME"]) if sys.platform != "win32" and env.get("HOME") else Path.home()
        return cls(home, sys.platform, Path(roaming) if roaming else None, Path(config) if config else None, env)

    def named(self, variable: str, default: Path) -> Path:
        """The path that an environment variable of the client gives, if it does."""
        value = self.env.get(variable)
        return Path(value) if value else default

    @property
    def apps(self) -> Path:
        """The settings directory of desktop programs."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.roaming or self.home / "AppData" / "Roaming"
        return self.config or self.home / ".config"

    @property
    def dots(self) -> Path:
        """The settings directory of terminal programs."""
        return self.config or self.home / ".config"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a client starts the bridge: a program and its arguments."""

    command: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownClient:
    """`root`: the path of the servers in the file; `project`: the file inside a project, if the client has one."""

    name: str
    title: str
    path: Callable[[UserFolders], Path]
    root: tuple[str, ...] = ("mcpServers",)
    entry: Callable[[Launch], dict[str, Any]] = lambda launch: {"command": launch.command, "args": [*launch.args]}
    project: str | None = None
    format: str = "json"
    after: str = "Restart it to load the server."


def _typed(launch: Launch) -> dict[str, Any]:
    return {"type": "stdio", "command": launch.command, "args": [*launch.args]}


def _local(launch: Launch) -> dict[str, Any]:
    return {"type": "local", "command": [launch.command, *launch.args], "enabled": True}


def _with_tools(launch: Launch) -> dict[str, Any]:
    return {"type": "local", "command": launch.command, "args": [*launch.args], "tools": ["*"]}


def _zed(place: UserFolders) -> Path:
    return (place.apps / "Zed" if place.platform == "win32" else place.dots / "zed") / "settings.json"


_KIRO = ".kiro/settings/mcp.json"
_CLINE = "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"

CLIENTS: tuple[KnownClient, ...] = (
    KnownClient(
        "claude-code",
        "Claude Code",
        lambda place: place.home / ".claude.json",
        entry=_typed,
        project=".mcp.json",
        after="Sessions that run see it after /mcp, new ones at once.",
    ),
    KnownClient("claude-desktop", "Claude Desktop", lambda place: place.apps / "Claude" / "claude_desktop_config.json"),
    KnownClient(
        "cursor",
        "Cursor",
        lambda place: place.home / ".cursor" / "mcp.json",
        project=".cursor/mcp.json",
        after="Switch it on in Settings, MCP.",
    ),
    KnownClient(
        "vscode",
        "VS Code",
        lambda place: place.apps / "Code" / "User" / "mcp.json",
        root=("servers",),
        entry=_typed,
        project=".vscode/mcp.json",
        after="Start it with the command: MCP: List Servers.",
    ),
    KnownClient(
        "codex",
        "Codex",
        lambda place: place.home / ".codex" / "config.toml",
        root=("mcp_servers",),
        format="toml",
        after="New sessions have it.",
    ),
    KnownClient("windsurf", "Windsurf", lambda place: place.home / ".codeium" / "windsurf" / "mcp_config.json"),
    KnownClient("zed", "Zed", _zed, root=("context_servers",), after="Zed loads it by itself."),
    KnownClient(
        "gemini",
        "Gemini CLI",
        lambda place: place.home / ".gemini" / "settings.json",
        project=".gemini/settings.json",
        after="New sessions have it.",
    ),
    KnownClient(
        "opencode",
        "opencode",
        lambda place: place.dots / "opencode" / "opencode.json",
        root=("mcp",),
        entry=_local,
        project="opencode.json",
        after="New sessions have it.",
    ),
    KnownClient("cline", "Cline", lambda place: place.apps / "Code" / "User" / _CLINE),
    # ~/.cline/data/settings/cline_mcp_settings.json, key mcpServers; CLINE_MCP_SETTINGS_PATH names another file
    KnownClient(
        "cline-cli",
        "Cline CLI",
        lambda place: place.named(
            "CLINE_MCP_SETTINGS_PATH", place.home / ".cline" / "data" / "settings" / "cline_mcp_settings.json"
        ),
        after="New sessions have it.",
    ),
    # ~/.copilot/mcp-config.json, key mcpServers, with the list `tools`; COPILOT_HOME names another directory
    KnownClient(
        "copilot-cli",
        "GitHub Copilot CLI",
        lambda place: place.named("COPILOT_HOME", place.home / ".copilot") / "mcp-config.json",
        entry=_with_tools,
        after="New sessions have it.",
    ),
    # ~/.qwen/settings.json, key mcpServers; the same file in a project
    KnownClient(
        "qwen-code",
        "Qwen Code",
        lambda place: place.home / ".qwen" / "settings.json",
        project=".qwen/settings.json",
        after="New sessions have it.",
    ),
    KnownClient("kiro", "Kiro", lambda place: place.home / _KIRO, project=_KIRO),
    KnownClient("lm-studio", "LM Studio", lambda place: place.home / ".lmstudio" / "mcp.json"),
)
BY_NAME = {client.name: client for client in CLIENTS}


def starts_bridge(entry: Any) -> bool:
    """Whether the entry starts this bridge, as `tabrelay install` writes it."""
    if not isinstance(entry, dict):
        return False
    command, args = entry.get("command"), entry.get("args")
    words = [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else [])]
    is_ours = any("tabrelay" in str(word) for word in words[:3])
    return is_ours and "stdio" in words
