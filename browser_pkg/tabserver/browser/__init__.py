"""The only package that imports `js` and `pyodide`: ports, WebSockets, abort signals and values of the browser.

Each class implements a Protocol that its caller defines, so every caller also runs on CPython. This package makes the
calls into the browser and reports what happened. It does not decide what to do about it.
"""
