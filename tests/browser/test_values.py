"""Abort signals of the worker, in a real Pyodide."""

from tests.support.nodejs import ROOT, node
from tests.test_pyodide import RUNTIME


async def test_a_task_that_awaits_an_aborted_promise_is_resumed() -> None:
    """Pyodide can't resume a task with a reason that is a string."""
    script = ROOT / "tests" / "support" / "aborted_promise.mjs"
    ended = await node(script, RUNTIME, ROOT / "browser_pkg")
    assert ended.out.strip() == "rejected: The relay did not answer.", ended.err[-2000:]
