"""A prompt in an editor calls a tool of a page in a real browser."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from playwright.async_api import Page

from tests.support.acp_child import AGENT, Child
from tests.support.demo import Demo


async def test_a_prompt_calls_tools_of_the_page_and_they_know_the_session(
    demo: Demo, page: Page, tmp_path: Path
) -> None:
    await page.evaluate(
        """async () => {
            const { connect } = await import("/-/client.js");
            await connect({ server: "demo" }).offerTool({
                name: "whose",
                description: "Which session calls?",
                inputSchema: { type: "object" },
                execute: (input, context) => ({ session: context.caller.acp?.session ?? null }),
            });
        }"""
    )
    command = ("--home", tmp_path / "home", "--port", str(demo.port), "--", sys.executable, AGENT)
    async with Child(*command) as editor:
        await editor.ask(0, "initialize", protocolVersion=1)
        assert (await editor.ask(1, "session/new", cwd="/", mcpServers=[]))["result"] == {"sessionId": "s1"}
        added = json.loads(await editor.prompt(2, 'call demo add {"a": 2, "b": 3}'))
        assert added["content"][0]["text"] == "5"
        info = json.loads(await editor.prompt(3, "call demo list_shapes {}"))
        assert info["structuredContent"]["tab"] == await page.title()
        whose = json.loads(await editor.prompt(4, "call demo whose {}"))
        assert whose["structuredContent"] == {"session": "s1"}
        editor.stdin.close()
        assert await editor.ended() == 0
