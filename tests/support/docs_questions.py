"""Questions of readers, and the pages of the documentation that answer them: one of them must be among the first three
that the search finds. The search is tried with all of them, and some are typed in a browser."""

from __future__ import annotations

from typing import Final

QUESTIONS: Final[dict[str, tuple[str, ...]]] = {
    "how do I connect Claude Code": ("start/clients/",),
    "install without network": ("start/install/",),
    "offer a tool in JavaScript": ("guides/pages/", "tutorial/1-javascript-tool/"),
    "python package numpy in the worker": ("guides/python/",),
    "which tab answers a call": ("guides/tabs/",),
    "approve a destructive tool": ("guides/approvals/", "tutorial/5-approval/"),
    "several relays with NATS": ("guides/scale/",),
    "prometheus metrics": ("reference/metrics/", "guides/monitoring/"),
    "vite react bundler": ("guides/frameworks/",),
    "when should I not use tabrelay": ("compare/",),
    "how do I let a page on another site connect": ("guides/pages/", "troubleshooting/"),
    "what happens to a call when the tab is closed": ("concepts/why-calls-survive/", "concepts/lifecycle/"),
    "which port": ("troubleshooting/", "reference/errors/"),
    "how do I revoke a token": ("reference/cli/",),
    "test my tools in CI": ("tutorial/7-test-in-ci/",),
    "ask the user a question from a tool": ("tutorial/4-question/",),
    "call fails with timeout": ("reference/errors/", "troubleshooting/"),
    "TR302": ("reference/errors/",),
    "browser_gone": ("reference/errors/", "concepts/why-calls-survive/"),
    "content security policy": ("guides/pages/",),
    "start the relay when the computer starts": ("start/install/", "reference/cli/"),
    "run behind nginx https": ("guides/hosting/",),
    "use an MCP server from a config file": ("reference/config/", "guides/upstreams/"),
    "page does not connect": ("troubleshooting/", "guides/pages/"),
    "is my data sent to a server": ("concepts/security/",),
    "zed jetbrains agent": ("guides/acp/",),
    "limit size of a result": ("reference/errors/", "reference/limits/"),
    "two browsers with the same server": ("guides/several-browsers/",),
    "how to see what calls were made": ("guides/monitoring/", "reference/cli/"),
    "progress of a long running tool": ("guides/pages/", "guides/python/", "guides/tasks/"),
    "long job that outlives the client": ("guides/tasks/",),
    "difference to playwright mcp": ("compare/",),
    "uninstall tabrelay": ("start/install/",),
    "how do users of my website get the relay": ("guides/ship/",),
    "exit codes of commands": ("reference/cli/",),
    "how fast is a call": ("concepts/performance/",),
    "does it work in firefox": ("reference/browsers/",),
    "why a shared worker": ("concepts/why-a-shared-worker/",),
    "websocket protocol frames": ("reference/link/",),
    "run in docker": ("guides/remote/", "guides/hosting/"),
    "ssh remote machine": ("guides/remote/",),
    "how to update tabrelay": ("start/install/",),
    "python tool needs pandas": ("guides/python/",),
    "how do I debug a call": ("guides/console/",),
    "replay a call": ("guides/console/",),
    "prompt injection": ("guides/approvals/", "tutorial/5-approval/"),
    "hot reload python": ("guides/python/", "guides/frameworks/"),
    "call a tool with the python sdk": ("start/clients/", "tutorial/3-resource/"),
    "environment variables": ("reference/settings/",),
    "memory usage": ("concepts/performance/", "reference/measurements/"),
    "json schema validation of arguments": ("guides/pages/", "guides/python/"),
    "kubernetes health check": ("guides/scale/", "guides/monitoring/"),
    "what browsers are supported": ("reference/browsers/",),
    "does my tool keep running when I reload the page": ("guides/tasks/", "concepts/lifecycle/"),
    "open source license": ("",),
}
TYPED: Final = tuple(QUESTIONS)[:10]


def is_answered(question: str, addresses: list[str]) -> bool:
    """`addresses`: of the sections that were found, below the site, the best first."""
    pages = list(dict.fromkeys(address.partition("#")[0] for address in addresses))
    return bool(set(pages[:3]) & set(QUESTIONS[question]))
