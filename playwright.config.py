"""Settings of the browser tests: timeouts, flags, and which browsers to drive.

A plain module, loaded by path (the name `playwright.config` would be looked up inside the installed Playwright). It
holds no fixtures. Run as a script it prints where it found a browser (`chromium` if none is named), or an empty line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

HEADLESS = os.environ.get("TABRELAY_HEADED", "") == ""

# Bounds for what must come, however busy the machine is: as `tests.support.waiting.BOUND_S`.
BOOT_TIMEOUT_MS = 180_000
ACTION_TIMEOUT_MS = 90_000
NAVIGATION_TIMEOUT_MS = 90_000
LAUNCH_TIMEOUT_MS = 180_000

# What Playwright switches off. Chromium reads only the last list that it is given, so ours repeats it, and a test
# compares them.
PLAYWRIGHT_DISABLES = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "DialMediaRouteProvider",
    "GlobalMediaControls",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "BlockOriginHeaderModificationOnRedirect",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "Translate",
    "AutoDeElevate",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "msForceBrowserSignIn",
    "msEdgeUpdateLaunchServicesPreferredVersion",
)
# The address bar loads two pages into a renderer for each window: 1.1 s of CPU time and 160 MB. A headless browser
# shows neither.
OMNIBOX_PAGES = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")

# The browser must not talk to anybody but the relay under test.
ARGS = [
    f"--disable-features={','.join((*PLAYWRIGHT_DISABLES, *OMNIBOX_PAGES))}",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]

ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")


def find_chromium() -> str | None:
    """TABRELAY_CHROMIUM, then Playwright's own, then one on PATH. None when there is none."""
    named = os.environ.get("TABRELAY_CHROMIUM")
    if named:
        return _program("TABRELAY_CHROMIUM", named)
    own = _playwrights_own()
    if own is not None:
        return own
    return next((found for name in ON_PATH if (found := shutil.which(name))), None)


def quick_boot_options(**more: Any) -> dict[str, Any]:
    """As `launch_options`, for tests that boot a worker each: V8 does not optimize WebAssembly, which saves a third of
    a boot's CPU time. `tests/browsers` tries the core in a Chromium as users start it."""
    args = ["--js-flags=--liftoff-only", *more.pop("args", [])]
    return launch_options(args=args, **more)


def launch_options(**more: Any) -> dict[str, Any]:
    """Arguments for `chromium.launch` or `launch_persistent_context`."""
    executable = find_chromium()
    if executable is None:
        raise FileNotFoundError("no Chromium found; `make test` installs one, or set TABRELAY_CHROMIUM")
    # Chromium refuses to start its sandbox for root, which is who containers are.
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    args = [*ARGS, *(["--no-sandbox"] if is_root else []), *more.pop("args", [])]
    return {
        "executable_path": executable,
        "headless": HEADLESS,
        "timeout": LAUNCH_TIMEOUT_MS,
        "args": args,
        **more,
    }


def find_firefox() -> str | None:
    """TABRELAY_FIREFOX, then one on PATH: the system's, as people have it."""
    named = os.environ.get("TABRELAY_FIREFOX")
    if named:
        return _program("TABRELAY_FIREFOX", named)
    return next((found for name in ("firefox-esr", "firefox") if (found := shutil.which(name))), None)


def firefox_options() -> dict[str, Any]:
    """Arguments for `firefox.launch`: over WebDriver BiDi, which an unchanged Firefox speaks."""
    executable = find_firefox()
    if executable is None:
        raise FileNotFoundError("no Firefox found; `make test-browsers` installs one, or set TABRELAY_FIREFOX")
    return {
        "channel": "moz-firefox",
        "executable_path": executable,
        "headless": HEADLESS,
        "timeout": LAUNCH_TIMEOUT_MS,
    }


def find_webkit() -> tuple[str, str] | None:
    """WebKitGTK's driver and its MiniBrowser, if there is a way to give them a display and a message bus."""
    needed = [shutil.which(name) for name in ("WebKitWebDriver", "xvfb-run", "dbus-run-session")]
    places = ("lib*/webkit2gtk-4.*/MiniBrowser", "lib*/*/webkit2gtk-4.*/MiniBrowser")
    browsers = sorted(str(path) for place in places for path in Path("/usr").glob(place))
    return (needed[0], browsers[0]) if needed[0] and all(needed) and browsers else None


def _program(setting: str, named: str) -> str:
    found = shutil.which(named)
    if found is None:
        raise FileNotFoundError(f"{setting} is {named!r}, which is not a program")
    return found


def _playwrights_own() -> str | None:
    """The build that the installed Playwright wants. Looks at files only: starting Playwright to ask is slow."""
    spec = importlib.util.find_spec("playwright")
    if spec is None or spec.origin is None:
        return None
    manifest = Path(spec.origin).parent / "driver" / "package" / "browsers.json"
    if not manifest.is_file():
        return None
    browsers = json.loads(manifest.read_text())["browsers"]
    revision = next(item["revision"] for item in browsers if item["name"] == "chromium")
    folder = _browser_cache() / f"chromium-{revision}"
    if not (folder / "INSTALLATION_COMPLETE").is_file():
        return None
    names = ("chrome-linux*/chrome", "chrome-mac*/*.app/Contents/MacOS/*", "chrome-win*/chrome.exe")
    return next((str(path) for name in names for path in sorted(folder.glob(name))), None)


def _browser_cache() -> Path:
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ms-playwright"


def find(name: str) -> str | None:
    if name == "webkit":
        found = find_webkit()
        return found and found[1]
    return find_firefox() if name == "firefox" else find_chromium()


if __name__ == "__main__":
    print(find(sys.argv[1] if len(sys.argv) > 1 else "chromium") or "")
