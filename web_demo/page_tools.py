"""Python tools of the demo that run in the page, with PyScript.

They can use the document and exist as long as the tab does. `offer` passes every `@tool` of this file to the connection
that the page's JavaScript already has; PyScript opens no connection.
"""

from pyscript.js_modules import tabrelay

from tabserver import tool
from tabserver.page import offer


@tool
def count_words(text: str) -> int:
    """Count the words of a text. Runs in Python, in the page, by PyScript."""
    return len(text.split())


offer(tabrelay.connect, server="demo")
