"""Pages that load the client in each documented way, in an app on its own origin.

The text of each page is the documentation's. The values that a reader would replace are replaced here: the address of
the relay, and a token instead of manual pairing.
"""

from __future__ import annotations

import asyncio
import io
import re
import shutil
import tarfile
from pathlib import Path

import httpx2

from tests.support.demo import Demo
from tests.support.npm_bundle import esbuild

ROOT = Path(__file__).parents[2]
WRITTEN = "http://127.0.0.1:4747"
LOADER = ROOT / "browser_pkg" / "tabserver" / "js" / "tabrelay.js"
STANDIN = ROOT / "web_demo" / "examples" / "webmcp" / "standin.js"
# Name of a way → the tool that its page offers.
WAYS = {
    "README": "current_note",
    "guide": "write_note",
    "api": "title",
    "PyScript": "page_title",
    "MicroPython": "write",
    "WebMCP": "add_note",
    "example": "read_note",
    "bundle": "add",
}
# The page's connection, whichever script has made it.
CONNECTION = '[...(globalThis[Symbol.for("tabrelay.connections")]?.values() ?? [])][0]'
OFFERED = f"""{CONNECTION}?.state.state === "connected"
    && {CONNECTION}.catalogue?.tools.some(({{ name }}) => name === "TOOL")"""
# Records the page's console messages.
COLLECT = """<script>
globalThis.said = [];
const { warn } = console;
console.warn = (...words) => { said.push(words.join(" ")); warn(...words); };
</script>"""
# The app's own code: it runs with and without the client.
OWN = '<script type="module">globalThis.ownCodeRan = true;</script>'


def block(page: str, language: str, start: str) -> str:
    """The first code block of a language that begins with a text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return next(str(block) for block in found if start in block)


def with_token(text: str, token: str) -> str:
    for worker in ("/tabrelay.js", "tabrelay.js"):
        text = text.replace(f'worker: "{worker}"', f'worker: "{worker}", token: "{token}"')
        text = text.replace(f'worker="{worker}"', f'worker="{worker}", token="{token}"')
    return text.replace("data-server=", f'data-token="{token}" data-server=')


async def fetch_files(folder: Path, relay: Demo) -> None:
    """The relay's files for self-hosting, as `curl` downloads them."""
    here = f"http://127.0.0.1:{relay.port}"
    async with httpx2.AsyncClient(trust_env=False) as http:
        for name in ("tabrelay.js", "webmcp.js"):
            answer = await http.get(f"{here}/-/{name}")
            answer.raise_for_status()
            (folder / name).write_text(answer.text, encoding="utf-8")
        package = (await http.get(f"{here}/-/tabrelay.tgz")).content
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        archive.extractall(folder / "unpacked", filter="data")


async def write_page(folder: Path, relay: Demo, way: str) -> str:
    """Write the page of one way; returns its path. The relay's files must exist."""
    if way == "example":
        shutil.copytree(ROOT / "web_demo" / "examples" / "cross_origin", folder / "example", dirs_exist_ok=True)
        shutil.copy(folder / "tabrelay.js", folder / "example" / "tabrelay.js")
        script = folder / "example" / "notes.js"
        script.write_text(with_token(script.read_text(encoding="utf-8"), relay.token), encoding="utf-8")
        page = folder / "example" / "index.html"
        html = page.read_text(encoding="utf-8").replace("<title>", f"{COLLECT}<title>", 1)
        page.write_text(html + OWN, encoding="utf-8")
        return "example/"
    body = await _bundled(folder, relay) if way == "bundle" else _written(way, folder)
    html = f"<!doctype html><title>{way}</title>{COLLECT}<p id=note>Buy milk.</p>{body}{OWN}"
    (folder / f"{way}.html").write_text(with_token(html, relay.token), encoding="utf-8")
    return f"{way}.html"


def _written(way: str, folder: Path) -> str:
    if way == "README":
        (folder / "tools.py").write_text(block("README.md", "python", "word_count"), encoding="utf-8")
        return block("README.md", "html", "connect(")
    if way == "guide":
        return block("docs/guides/pages.md", "html", "write_note")
    if way == "PyScript":
        return block("docs/guides/pyscript.md", "html", 'type="py"')
    if way == "MicroPython":
        return block("docs/guides/micropython.md", "html", 'type="mpy"')
    if way == "WebMCP":
        shutil.copy(STANDIN, folder / "standin.js")
        html = block("docs/guides/webmcp.md", "html", "registerTool")
        # The page's own script follows the stand-in, for browsers without WebMCP.
        return html.replace("<script>", '<script type="module">import "/standin.js";')
    api = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    [described] = re.findall(r"^### `connect`\n(.*?)```", api, re.MULTILINE | re.DOTALL)
    code = "\n".join(line[4:] for line in described.splitlines() if line.startswith("    "))
    return f'<script type="module">{code}</script>'


async def _bundled(folder: Path, relay: Demo) -> str:
    project = folder / "project"
    shutil.copytree(folder / "unpacked" / "package", project / "node_modules" / "tabrelay", dirs_exist_ok=True)
    code = block("docs/guides/frameworks.md", "ts", "connect(").replace(WRITTEN, f"http://127.0.0.1:{relay.port}")
    (project / "app.ts").write_text(with_token(code, relay.token), encoding="utf-8")
    made = await asyncio.create_subprocess_exec(
        esbuild(), str(project / "app.ts"), "--bundle", "--format=esm", f"--outfile={folder / 'app.js'}"
    )
    assert await made.wait() == 0
    return '<script type="module" src="/app.js"></script>'
