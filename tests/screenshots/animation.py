"""`python -m tests.screenshots.animation`: the animation at the top of README.md, from screenshots of the real demo.

A real client, `tabrelay call`, calls a tool of the demo page in Chromium. While the tool draws, the page's connection
is cut; later the result arrives. The SVG file has the command and its output as text, and the page as a row of
screenshots, which CSS shows one after the other. It has no script. Readers who want no motion see the last picture.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from playwright.async_api import CDPSession, Page, async_playwright, expect

from tests.screenshots.stage import Stage
from tests.screenshots.states import DRAWING, FIRST_VISIT, STOP
from tests.support.paths import ROOT
from tests.support.playwright_settings import load_settings

OUT: Final = ROOT / "docs" / "images" / "demo.svg"
MAX_BYTES: Final = 2_000_000
VIEWPORT: Final = (1024, 1100)
QUALITY: Final = 80
SCALE: Final = 1.5
ARGUMENTS: Final = ("x=530", "y=270", "radius=150", "seconds=9", "color=purple")
COMMAND: Final = f"tabrelay call demo draw_spiral {' '.join(ARGUMENTS)}"
# Of the call, in seconds.
CUT_AT_S: Final = 3.0
BACK_AT_S: Final = 6.5
EVERY_S: Final = 0.5
# How long the parts of the animation are shown.
TYPING_S: Final = 1.6
FRAME_S: Final = 0.42
END_S: Final = 4.0
RETRY: Final = """async () => {
    const { connection } = await import("/-/demo/page_tools.js");
    connection.retry();
}"""
# The way of the call, and the canvas.
CLIP: Final = """() => {
    const boxOf = (id) => document.querySelector(id).getBoundingClientRect();
    const [drawing, way, canvas] = ["#drawing", "#way", "#canvas"].map(boxOf);
    const x = Math.min(drawing.x, way.x), y = Math.min(drawing.y, way.y);
    return [x, y + scrollY, Math.max(drawing.right, way.right) - x, canvas.bottom + 14 - y];
}"""
CAPTIONS: Final = (
    "A client calls a tool of the page.",
    "The page draws, and the client waits.",
    "The connection is cut. The tool continues.",
    "Connected again. The call was not repeated.",
    "The result arrives.",
)


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture of the page, how long it is shown, and the number of its caption."""

    picture: bytes
    seconds: float
    caption: int


class Camera:
    """Takes pictures of the same part of the page."""

    def __init__(self, session: CDPSession, clip: list[float]) -> None:
        self._session = session
        self.width, self.height = clip[2], clip[3]
        self._clip = {"x": clip[0], "y": clip[1], "width": clip[2], "height": clip[3], "scale": SCALE}

    async def picture(self) -> bytes:
        options = {"format": "webp", "quality": QUALITY, "clip": self._clip, "captureBeyondViewport": True}
        return base64.b64decode((await self._session.send("Page.captureScreenshot", options))["data"])


async def play(stage: Stage, home: Path) -> tuple[Camera, list[Scene], str]:
    """The scenes, and what the client prints."""
    page = await stage.demo()
    await page.set_viewport_size({"width": VIEWPORT[0], "height": VIEWPORT[1]})
    await page.emulate_media(color_scheme="light")
    await page.evaluate(FIRST_VISIT)
    for tool, arguments in (DRAWING[0], *DRAWING[3:]):
        await stage.call(tool, arguments)
    await expect(page.locator("#lane .trip")).to_have_count(0)
    camera = Camera(await page.context.new_cdp_session(page), await page.evaluate(CLIP))
    scenes = [Scene(await camera.picture(), TYPING_S, 0)]
    client = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("tabrelay"),
        *("call", "demo", "draw_spiral", *ARGUMENTS, "--home", str(home)),
        stdout=asyncio.subprocess.PIPE,
    )
    await page.locator("#lane .trip").first.wait_for()
    scenes += await follow(page, camera, client)
    printed, _ = await client.communicate()
    await page.locator("#last-call", has_text="→").wait_for()
    await asyncio.sleep(EVERY_S)  # the drawing's last part
    scenes.append(Scene(await camera.picture(), END_S, len(CAPTIONS) - 1))
    return camera, scenes, printed.decode().strip()


async def follow(page: Page, camera: Camera, client: asyncio.subprocess.Process) -> list[Scene]:
    """Pictures until the client ends, while the connection is cut and comes back."""
    scenes: list[Scene] = []
    began, caption = time.monotonic(), 1
    while client.returncode is None:
        at = time.monotonic() - began
        if caption == 1 and at >= CUT_AT_S:
            caption = 2
            await page.evaluate(STOP)
            await page.locator("#line[data-cut]").wait_for()
        elif caption == 2 and at >= BACK_AT_S:
            caption = 3
            await page.evaluate(RETRY)
            await page.locator("#line:not([data-cut])").wait_for()
        scenes.append(Scene(await camera.picture(), FRAME_S, caption))
        await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began - at)))
    return scenes


def drawn(camera: Camera, scenes: list[Scene], printed: str) -> str:
    """The SVG file. A picture covers those before it, so each appears at its time and stays."""
    total = sum(scene.seconds for scene in scenes)
    width, page_y = 976.0, 150.0
    scale = (width - 32) / camera.width
    height = page_y + camera.height * scale + 16
    styles, images, starts = [], [], dict[int, float]()
    at = 0.0
    for number, scene in enumerate(scenes):
        starts.setdefault(scene.caption, at)
        styles.append(_appears(f"f{number}", at / total))
        data = base64.b64encode(scene.picture).decode()
        images.append(
            f'<image class="f{number}" x="16" y="{page_y:g}" width="{width - 32:g}" '
            f'height="{camera.height * scale:.1f}" href="data:image/webp;base64,{data}"/>'
        )
        at += scene.seconds
    texts = []
    for number, caption in enumerate(CAPTIONS):
        ends = starts.get(number + 1)
        past = "" if ends is None else " past"
        styles.append(_appears(f"c{number}", starts[number] / total, None if ends is None else ends / total))
        texts.append(f'<text class="caption c{number}{past}" x="20" y="134">{escape(caption)}</text>')
    styles.append(_appears("out", starts[len(CAPTIONS) - 1] / total))
    typed = TYPING_S * 0.75 / total
    styles.append(f"@keyframes cover{{0%{{transform:none}}{typed:.2%},100%{{transform:translateX(900px)}}}}")
    styles.append(f".cover{{transform:translateX(900px);animation:cover {total:.2f}s steps(60) infinite}}")
    return TEMPLATE.format(
        width=f"{width:g}",
        height=f"{height:.0f}",
        seconds=f"{total:.2f}",
        styles="\n".join(styles),
        command=escape(COMMAND),
        printed=escape(printed),
        captions="\n".join(texts),
        images="\n".join(images),
    )


def _appears(name: str, start: float, end: float | None = None) -> str:
    """The rule of a class that is visible from `start` to `end`, as parts of the whole."""
    last = "100%{opacity:1}" if end is None else f"{end:.3%},100%{{opacity:0}}"
    first = "" if start == 0 else "0%{opacity:0}"
    return f"@keyframes {name}{{{first}{start:.3%}{{opacity:1}}{last}}}.{name}{{animation-name:{name}}}"


TEMPLATE: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" \
aria-label="A client calls a tool of the demo page. The connection is cut while the tool draws. The result arrives.">
<!-- Made by `make animation`. -->
<style>
text{{font:15px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e8eeec;white-space:pre}}
.prompt{{fill:#7fd1b4}} .out{{fill:#c9d6d1}}
.caption{{font:600 17px ui-sans-serif,system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#16201d}}
.past{{opacity:0}}
image,.caption,.out{{animation:{seconds}s step-end infinite}}
{styles}
@media (prefers-reduced-motion:reduce){{*{{animation:none!important}}}}
</style>
<rect width="{width}" height="{height}" rx="14" fill="#f3f5f7"/>
<rect x="16" y="16" width="944" height="88" rx="9" fill="#16201d"/>
<clipPath id="terminal"><rect x="16" y="16" width="944" height="88" rx="9"/></clipPath>
<g clip-path="url(#terminal)">
<text x="32" y="50"><tspan class="prompt">$ </tspan>{command}</text>
<rect class="cover" x="50" y="30" width="900" height="30" fill="#16201d"/>
<text class="out" x="32" y="80">{printed}</text>
</g>
{captions}
{images}
</svg>
"""


async def main() -> None:
    settings = load_settings()
    with tempfile.TemporaryDirectory() as folder:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(**settings.launch_options())
            async with Stage(Path(folder) / "stage", browser, settings) as stage:
                text = drawn(*await play(stage, Path(folder) / "stage" / "home"))
            await browser.close()
    if len(text) > MAX_BYTES:
        raise SystemExit(f"The animation has {len(text):,} bytes; at most {MAX_BYTES:,} are allowed.")
    OUT.write_text(text, encoding="utf-8")
    print(f"{OUT.relative_to(ROOT)}: {len(text):,} bytes")


if __name__ == "__main__":
    asyncio.run(main())
