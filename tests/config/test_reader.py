"""Configuration files: all formats, the resulting specs, and the reports of mistakes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tabrelay.cli.main import main
from tabrelay.config.mistakes import ConfigMistakes
from tabrelay.config.reader import Config, effective, load
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.config.specs import BrowserSpec, HttpSpec, OAuthSpec, Spec, StdioSpec, fingerprint

ENV = {"TOKEN": "s3cret-value", "EMPTY": ""}


def file(folder: Path, text: str | dict[str, Any], name: str | None = None) -> Path:
    if isinstance(text, dict):
        path, text = folder / (name or "mcp.json"), json.dumps(text)
    else:
        path = folder / (name or "tabrelay.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def servers(folder: Path, text: str | dict[str, Any], name: str | None = None) -> dict[str, Spec]:
    return load([file(folder, text, name)], env=ENV).servers


def mistakes(folder: Path, text: str | dict[str, Any], *names: str, name: str | None = None) -> dict[str, str]:
    """Mistakes by key."""
    with pytest.raises(ConfigMistakes) as raised:
        load([file(folder, text, name)], names, ENV)
    path = str(folder / (name or ("mcp.json" if isinstance(text, dict) else "tabrelay.toml")))
    assert {mistake.file for mistake in raised.value.mistakes} <= {path, "command line"}
    assert all(mistake.expected for mistake in raised.value.mistakes)
    return {mistake.key: mistake.problem for mistake in raised.value.mistakes}


# -- the project's own format


def test_our_own_form_has_settings_and_servers(tmp_path: Path) -> None:
    config = load(
        [
            file(
                tmp_path,
                """
                port = 4800
                allow_origins = ["https://app.example"]

                [servers.notes]

                [servers.old]
                type = "plain"
                path = "/db"

                [servers.files]
                command = "npx"
                args = ["-y", "files", "${TOKEN}"]
                env = { KEY = "${TOKEN}", LEVEL = 3 }
                env_vars = ["TOKEN"]
                cwd = "."
                timeout_s = 60
                era = "legacy"
                request_ids = "string"
                shared = true

                [servers.search]
                url = "https://search.example/mcp"
                headers = { Authorization = "Bearer ${env:TOKEN}" }

                [servers.feed]
                type = "sse"
                url = "http://127.0.0.1:9/sse"

                [servers.later]
                command = "x"
                enabled = false
                """,
            )
        ],
        env=ENV,
    )
    assert config.settings == {"port": 4800, "allow_origins": ["https://app.example"]}
    assert config.disabled == ("later",)
    env = (("KEY", "s3cret-value"), ("LEVEL", "3"), ("TOKEN", "s3cret-value"))
    assert config.servers == {
        "notes": BrowserSpec("notes"),
        "old": BrowserSpec("old", "/db", frozenset({"plain"})),
        "files": StdioSpec(
            "files", "npx", ("-y", "files", "s3cret-value"), env, str(tmp_path), 60, "legacy", "string", is_shared=True
        ),
        "search": HttpSpec("search", "https://search.example/mcp", (("Authorization", "Bearer s3cret-value"),)),
        "feed": HttpSpec("feed", "http://127.0.0.1:9/sse", transport="sse"),
    }


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, 'host = "::1"\nport = 1\ngrace_s = 1\n[servers.notes]\nplain = true')
    env = {"TABRELAY_PORT": "2", "TABRELAY_GRACE_S": "2", "TABRELAY_CONFIG": str(path)}
    settings, config = effective({"grace_s": 3.0, "servers": ("more",), "plain": ("own",)}, env)
    assert (settings.host, settings.port, settings.grace_s) == ("::1", 2, 3.0)
    assert set(settings.servers) == {"notes", "more", "own"}
    assert set(settings.plain) == {"notes", "own"}
    assert set(config.servers) == {"notes", "more", "own"}


def test_what_equals_the_spec_before_has_not_changed(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "x"\nenv = { A = "1", B = "2" }'
    again = '[servers.a]\nenv = { B = "2", A = "1" }\ncommand = "x"\n'
    [one], [two] = servers(tmp_path, text).values(), servers(tmp_path, again).values()
    assert one == two
    assert isinstance(one, StdioSpec) and isinstance(two, StdioSpec)
    assert fingerprint(one) == fingerprint(two)
    [other] = servers(tmp_path, text.replace('"x"', '"y"')).values()
    assert isinstance(other, StdioSpec)
    assert fingerprint(other) != fingerprint(one)


def test_a_spec_keeps_its_secrets_out_of_its_text() -> None:
    assert "hidden" not in repr(StdioSpec("a", "x", env=(("K", "hidden"),)))
    assert "hidden" not in repr(HttpSpec("a", "http://u:hidden@x", (("Authorization", "hidden"),)))


# -- formats of other programs


def test_websocket_mcp(tmp_path: Path) -> None:
    listed = [
        {"name": "fs", "type": "stdio", "command": "npx", "args": ["-y", "x"], "timeout": 5000},
        {"name": "ext", "type": "http", "url": "http://127.0.0.1:3001", "headers": {"A": "b"}},
        {"name": "ui", "type": "websocket", "path": "db", "enabled": True},
        {"name": "tools", "type": "websocket"},
        {"name": "off", "type": "websocket", "enabled": False},
    ]
    assert servers(tmp_path, {"servers": listed}) == {
        "fs": StdioSpec("fs", "npx", ("-y", "x"), timeout_s=5),
        "ext": HttpSpec("ext", "http://127.0.0.1:3001", (("A", "b"),), "http"),
        "ui": BrowserSpec("ui", "/db", frozenset({"plain"})),
        "tools": BrowserSpec("tools", None, frozenset({"plain"})),
    }


def test_the_mcp_servers_of_claude_cursor_cline_and_others(tmp_path: Path) -> None:
    listed = {
        "fs": {"command": "npx", "args": ["x"], "env": {"A": "${TOKEN}"}, "timeout": 60, "alwaysAllow": ["y"]},
        "typed": {"type": "stdio", "command": "x"},
        "http": {"type": "http", "url": "https://a.example/mcp"},
        "streamable": {"type": "streamable-http", "url": "https://a.example/mcp"},
        "camel": {"type": "streamableHttp", "url": "https://a.example/mcp"},
        "events": {"transport": "sse", "url": "https://a.example/sse"},
        "type": {"transportType": "http", "url": "https://a.example/mcp"},
        "open": {"url": "https://a.example/mcp", "headers": {"X": "1"}},
        "gemini": {"httpUrl": "https://a.example/mcp"},
        "off": {"command": "x", "disabled": True},
        "off too": {"command": "x", "enabled": False},
    }
    found = servers(tmp_path, {"mcpServers": listed, "numStartups": 5})
    assert found["fs"] == StdioSpec("fs", "npx", ("x",), (("A", "s3cret-value"),))
    assert found["typed"] == StdioSpec("typed", "x")
    transports = {name: spec.transport for name, spec in found.items() if isinstance(spec, HttpSpec)}
    assert transports == {
        "http": "http",
        "streamable": "http",
        "camel": "http",
        "events": "sse",
        "type": "http",
        "open": "auto",
        "gemini": "http",
    }
    assert not {"off", "off-too"} & found.keys()


def test_the_file_of_vs_code_with_comments_and_its_variables(tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("# keys\nexport A=1\nB='two'\n\n")
    text = """
    // by hand
    {
      "inputs": [],
      "servers": {
        "fs": {
          "type": "stdio", "command": "node", /* the // program */
          "args": ["${workspaceFolder}/server.js", "http://x//y",],
          "env": {"T": "${env:TOKEN}", "D": "${NOT_SET:-default}", "L": "$${literal}"},
          "envFile": "${workspaceFolder}/keys.env",
        },
      },
    }
    """
    [spec] = servers(tmp_path, text, ".vscode/mcp.json").values()
    assert isinstance(spec, StdioSpec)
    assert spec.args == (f"{tmp_path}/server.js", "http://x//y")
    assert dict(spec.env) == {"A": "1", "B": "two", "D": "default", "L": "${literal}", "T": "s3cret-value"}


def test_the_file_of_codex(tmp_path: Path) -> None:
    found = servers(
        tmp_path,
        """
        model = "o"
        [mcp_servers.fs]
        command = "npx"
        args = ["x"]
        env_vars = ["TOKEN"]
        tool_timeout_sec = 90
        [mcp_servers.docs]
        url = "https://a.example/mcp"
        bearer_token_env_var = "TOKEN"
        http_headers = { "X-Region" = "eu" }
        env_http_headers = { "X-Key" = "TOKEN" }
        [mcp_servers.off]
        command = "x"
        enabled = false
        """,
    )
    headers = (("Authorization", "Bearer s3cret-value"), ("X-Key", "s3cret-value"), ("X-Region", "eu"))
    assert found == {
        "fs": StdioSpec("fs", "npx", ("x",), (("TOKEN", "s3cret-value"),), timeout_s=90),
        "docs": HttpSpec("docs", "https://a.example/mcp", headers),
    }


def test_the_configuration_file_of_opencode_is_edited(tmp_path: Path) -> None:
    listed = {
        "fs": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"A": "{env:TOKEN}"}},
        "docs": {"type": "remote", "url": "https://a.example/mcp", "enabled": True},
        "off": {"type": "local", "command": ["x"], "enabled": False},
    }
    assert servers(tmp_path, {"mcp": listed}) == {
        "fs": StdioSpec("fs", "npx", ("-y", "x"), (("A", "s3cret-value"),)),
        "docs": HttpSpec("docs", "https://a.example/mcp"),
    }


def test_names_of_other_programs_become_addresses(tmp_path: Path) -> None:
    config = load([file(tmp_path, {"mcpServers": {"My Server (2)": {"command": "x"}}})], env=ENV)
    assert set(config.servers) == {"My-Server-2"}
    assert len(config.notes) == 1 and 'served as "My-Server-2"' in config.notes[0]


def test_headers_that_the_relay_makes_are_not_the_configurations(tmp_path: Path) -> None:
    headers = {"MCP-Protocol-Version": "1", "mcp-session-id": "x", "Mcp-Param-A": "y", "accept": "*", "X": "kept"}
    config = load([file(tmp_path, {"mcpServers": {"a": {"url": "https://a.example", "headers": headers}}})], env=ENV)
    [spec] = config.servers.values()
    assert isinstance(spec, HttpSpec)
    assert spec.headers == (("X", "kept"),)
    assert len(config.notes) == 4


# -- names on the command line


def test_a_name_may_have_a_path_as_in_websocket_mcp() -> None:
    assert load([], ("browser-tools", "db:/db"), {}).servers == {
        "browser-tools": BrowserSpec("browser-tools"),
        "db": BrowserSpec("db", "/db", frozenset({"plain"})),
    }
    settings, _ = effective({"servers": ("browser-tools", "db:/db")}, {})
    assert (settings.servers, settings.plain) == (("browser-tools", "db"), ("db",))


@pytest.mark.parametrize("name", ["db:", "db:/-/x", "db:/a b", "db:/../x", "db:/favicon.ico", ":/db", "a b", "-x"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigMistakes, match="command line"):
        load([], (name,), {})


def test_a_name_of_the_command_line_may_repeat_a_browser_of_the_file_but_nothing_else(tmp_path: Path) -> None:
    text = '[servers.notes]\nplain = true\n[servers.files]\ncommand = "x"'
    found = load([file(tmp_path, text)], ("notes",), ENV).servers
    assert found["notes"] == BrowserSpec("notes", None, frozenset({"plain"}))
    assert 'called "files"' in mistakes(tmp_path, text, "files")["files"]


# -- mistakes


def test_oauth_of_a_server_is_a_table_or_switched_off(tmp_path: Path) -> None:
    found = servers(
        tmp_path,
        """
        [servers.plain]
        url = "https://a.example"
        [servers.never]
        url = "https://a.example"
        oauth = false
        [servers.machine]
        url = "https://a.example"
        oauth = { grant = "client_credentials", client_id = "me", client_secret = "${TOKEN}", scope = "a b" }
        """,
    )
    specs = {name: spec.oauth for name, spec in found.items() if isinstance(spec, HttpSpec)}
    machine = OAuthSpec("client_credentials", "me", "s3cret-value", scope="a b")
    assert specs == {"plain": OAuthSpec(), "never": None, "machine": machine}
    assert "s3cret-value" not in repr(found["machine"])


def test_every_mistake_about_oauth_is_reported(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        """
        [servers.a]
        url = "https://a.example"
        oauth = "yes"
        [servers.b]
        url = "https://a.example"
        oauth = { grant = "implicit", client_idd = "x", client_secret = "y", scope = 3 }
        [servers.c]
        url = "https://a.example"
        oauth = { grant = "client_credentials" }
        [servers.d]
        command = "x"
        oauth = true
        """,
    )
    assert set(found) == {
        "servers.a.oauth",
        "servers.b.oauth.grant",
        "servers.b.oauth.client_idd",
        "servers.b.oauth.scope",
        "servers.b.oauth",
        "servers.c.oauth",
        "servers.d.oauth",
    }


def test_all_mistakes_are_reported_at_once_with_file_and_key(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        """
        port = "many"
        prot = 1
        servers.-bad.command = "x"
        [servers.token]
        [servers."a b"]
        [servers.kind]
        type = "carrier-pigeon"
        [servers.nothing]
        type = "stdio"
        [servers.nowhere]
        type = "http"
        [servers.both]
        command = "x"
        url = "https://a.example"
        [servers.typo]
        comand = "x"
        [servers.mixed]
        command = "x"
        plain = true
        args = "x"
        env = { A = true }
        cwd = "no/such/folder"
        timeout_s = -1
        era = "stone"
        [servers.web]
        url = "ftp://a.example"
        headers = { "bad header" = "x", B = "${NOT_SET}" }
        [servers.page]
        type = "plain"
        path = "/-/status"
        enabled = "yes"
        """,
    )
    assert set(found) == {
        *("port", "prot", "servers.-bad", "servers.token", 'servers."a b"', "servers.kind.type"),
        *("servers.nothing.command", "servers.nowhere.url", "servers.both", "servers.typo.comand"),
        *(f"servers.mixed.{key}" for key in ("plain", "args", "env.A", "cwd", "timeout_s", "era")),
        "servers.web.url",
        'servers.web.headers."bad header"',
        "servers.web.headers.B",
        "servers.page.path",
        "servers.page.enabled",
    }
    assert "reserved" in found["servers.token"]
    assert "NOT_SET" in found["servers.web.headers.B"]


def test_mistakes_of_several_files_are_reported_together(tmp_path: Path) -> None:
    files = [
        file(tmp_path, '[servers.a]\ncommand = "x"'),
        file(tmp_path, {"mcpServers": {"a": {"command": "y"}, "b": {}}}),
        file(tmp_path, {"servers": [{"type": "http", "url": "x"}, {"name": "c"}, 5]}, "ws.json"),
        file(tmp_path, "{", "broken.json"),
        file(tmp_path, "= 5", "broken.toml"),
        file(tmp_path, {"a": 1}, "other.json"),
        tmp_path / "missing.toml",
    ]
    with pytest.raises(ConfigMistakes) as raised:
        load(files, env={})
    told = [(Path(mistake.file).name, mistake.key) for mistake in raised.value.mistakes]
    assert told == [
        ("mcp.json", "mcpServers.b"),
        ("mcp.json", "mcpServers.a"),
        ("ws.json", "servers[0].name"),
        ("ws.json", "servers[1].type"),
        ("ws.json", "servers[2]"),
        ("broken.json", ""),
        ("broken.toml", ""),
        ("other.json", ""),
        ("missing.toml", ""),
    ]


def test_two_servers_of_one_name_or_path_are_a_mistake(tmp_path: Path) -> None:
    twice = [{"name": "a", "type": "websocket"}, {"name": "a", "type": "http", "url": "http://x"}]
    assert 'called "a"' in mistakes(tmp_path, {"servers": twice})["servers[1]"]
    paths = [{"name": "a", "type": "websocket", "path": "/x"}, {"name": "b", "type": "websocket", "path": "/x"}]
    assert 'the address of "a"' in mistakes(tmp_path, {"servers": paths})["servers[1].path"]
    other = [{"name": "a", "type": "websocket"}, {"name": "b", "type": "websocket", "path": "/a"}]
    assert 'the address of "a"' in mistakes(tmp_path, {"servers": other})["servers[1].path"]
    text = '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}'
    with pytest.raises(ConfigMistakes, match='names "a" twice'):
        load([file(tmp_path, text, "twice.json")], env={})


def test_no_mistake_shows_a_value_that_may_be_a_secret(tmp_path: Path) -> None:
    listed = {"a": {"command": "x", "env": "hunter2", "args": "hunter2"}, "b": {"url": "hunter2://hunter2"}}
    with pytest.raises(ConfigMistakes) as raised:
        load([file(tmp_path, {"mcpServers": listed})], env={})
    assert len(raised.value.mistakes) == 3
    assert "hunter2" not in str(raised.value)


def test_an_input_that_an_editor_would_ask_for_is_a_mistake(tmp_path: Path) -> None:
    listed = {"a": {"command": "x", "env": {"K": "${input:key}"}}, "b": {"command": "${b a d}"}}
    found = mistakes(tmp_path, {"servers": listed})
    assert "'key'" in found["servers.a.env.K"]
    assert "servers.b.command" in found


@pytest.mark.parametrize(
    ("key", "value"),
    [("port", 70000), ("port", True), ("grace_s", "1"), ("grace_s", -1), ("no_auth", 1), ("allow_hosts", "x")],
)
def test_a_setting_of_the_wrong_kind_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError):
        Settings.check(key, value)


# -- the commands


def run(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str, str]:
    code = main([str(arg) for arg in argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_config_check_lists_the_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = {"fs": {"command": "no-such-program"}, "off": {"command": "x", "disabled": True}}
    path = file(tmp_path, {"mcpServers": listed})
    code, out, err = run(capsys, "config", "check", "-c", path, "db:/db")
    assert (code, err) == (0, "")
    for words in ("mcpServers", "fs: stdio", "db: browser", "off: switched off", '"no-such-program"', "No mistakes."):
        assert words in out
    code, out, _ = run(capsys, "config", "check", "-c", path, "--json")
    assert (code, json.loads(out)["servers"]) == (0, {"fs": "stdio"})


def test_config_check_fails_with_every_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, '[servers.a]\ntype = "x"\n[servers.b]\ntype = "stdio"')
    code, out, err = run(capsys, "config", "check", "-c", path)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"{path}: servers.a.type: unknown type 'x'; expected browser, plain, stdio, http or sse.",
        f'{path}: servers.b.command: is missing; expected the program to run, such as "npx".',
        "2 mistakes.",
        "Help: tabrelay help TR309",
    ]
    code, out, _ = run(capsys, "config", "check", "-c", path, "--json")
    assert code == 1
    assert [mistake["key"] for mistake in json.loads(out)["mistakes"]] == ["servers.a.type", "servers.b.command"]


def test_config_show_is_our_own_form_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    listed = {
        "fs": {
            "command": "npx",
            "args": ["--api-key", "hunter2", "--token=hunter2", "-y", "ghp_hunter2hunter2hunter2", "--key", "${TOKEN}"],
            "env": {"A": "hunter2", "B": "${TOKEN}", "odd name": "hunter2"},
        },
        "docs": {
            "url": "https://user:hunter2@a.example/mcp?key=hunter2",
            "headers": {"Authorization": "Bearer hunter2", "X": "Bearer ${TOKEN}"},
        },
    }
    code, out, _ = run(capsys, "config", "show", "-c", file(tmp_path, {"mcpServers": listed}), "db:/db")
    assert code == 0
    assert "hunter2" not in out
    again = tomllib.loads(out)["servers"]
    assert again["fs"]["env"] == {"A": "[redacted]", "B": "${TOKEN}", "odd name": "[redacted]"}
    assert again["fs"]["args"][-1] == "${TOKEN}"
    assert again["docs"]["headers"] == {"Authorization": "[redacted]", "X": "Bearer ${TOKEN}"}
    assert set(load([file(tmp_path, out)], env={"TOKEN": "x"}).servers) == {"fs", "docs", "db"}
    code, out, _ = run(capsys, "config", "show", "-c", file(tmp_path, {"mcpServers": listed}), "--json")
    assert "hunter2" not in out
    assert json.loads(out)["servers"]["fs"]["command"] == "npx"


def test_serve_refuses_a_configuration_with_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, '[servers.a]\ntype = "x"\n[servers.b]\ntype = "y"')
    code, out, err = run(capsys, "serve", "-c", path, "--home", tmp_path)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 3 and err.endswith(" help TR309\n")


def test_config_without_a_file_prints_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "config", "check")[0] == 2


def test_an_empty_configuration_is_no_mistake(tmp_path: Path) -> None:
    assert load([file(tmp_path, "")], env={}) == Config(programs={str(tmp_path / "tabrelay.toml"): "tabrelay"})
