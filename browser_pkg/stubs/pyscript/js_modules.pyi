"""The JavaScript modules that a PyScript page names in its configuration, each under the name it chose."""

from pyodide.ffi import JsProxy

def __getattr__(name: str) -> JsProxy: ...
