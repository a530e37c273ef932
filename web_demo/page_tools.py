"""Tools of the demo that run in the page itself, in Python, by PyScript.

They see the document and live as long as the tab does. `offer` hands every `@tool` of this file to the connection that
the page's JavaScript already has; PyScript needs no link of its own.
"""

from pyscript.js_modules import tabrelay

from tabserver import tool
from tabserver.page import offer


@tool
def count_words(text: str) -> int:
    """Count the words of a text. Runs in Python, in the page, by PyScript."""
    return len(text.split())


offer(tabrelay.connect, server="demo")
