"""Tabserver for MicroPython pages (`<script type="mpy">`): the decorators of the Python package, with `params`.

MicroPython keeps neither annotations nor docstrings, so both are arguments; the page also runs in Pyodide unchanged.
The page's client.js checks arguments, converts results and asks the client: this file only translates.
"""

import asyncio
import binascii
import json
import sys
from collections import namedtuple

import js
from jsffi import JsException

TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
HINTS = {"read_only": "readOnly", "destructive": "destructive", "idempotent": "idempotent", "open_world": "openWorld"}
WORDS = {"mime_type": "mimeType", "output_schema": "outputSchema", "meta": "_meta"}
Elicited = namedtuple("Elicited", ("action", "content", "accepted"))


class ToolError(Exception):
    """An error whose text the client receives without the name of its class."""


class Image:
    """An image: its bytes, or base64 text. Other content is returned in the form that it has in MCP."""

    def __init__(self, data, mime_type="image/png"):
        text = data if isinstance(data, str) else binascii.b2a_base64(data).decode().strip()
        self.block = {"type": "image", "data": text, "mimeType": mime_type}


class Context:
    """A parameter of this type receives the context of client.js: caller, progress, log and questions."""

    def __init__(self, call):
        self._call = call

    def __getattr__(self, name):
        member = getattr(self._call, name)
        return (lambda *given: member(*map(to_javascript, given))) if callable(member) else member

    async def elicit(self, message, schema):
        answer = await self._call.elicit(message, to_javascript(schema))
        return Elicited(answer.action, json.loads(js.JSON.stringify(answer.content or {})), answer.action == "accept")

    async def sample(self, messages, **options):
        options = {"maxTokens" if key == "max_tokens" else key: given for key, given in options.items()}
        return await self._call.sample(to_javascript(messages), to_javascript(options))


class Toolbox:
    def __init__(self):
        self._items, self._connections = {}, []

    def add(self, kind, key, item):
        self._items[kind, key] = "offer" + kind, item, js.AbortController.new()
        for connection in self._connections:
            getattr(connection, "offer" + kind)(item, self._items[kind, key][2])

    def join(self, connection):
        self._connections.append(connection)
        for offer, item, abort in self._items.values():
            getattr(connection, offer)(item, abort)  # options: an AbortController has the member `signal`
        return connection

    def remove(self, name):
        self._items.pop(("Tool", name))[2].abort("withdrawn")


default_toolbox = Toolbox()


def tool(function=None, *, params=None, **options):
    """`params`: for each parameter its type, (type, default), a JSON Schema, or Context."""
    return _decorate("Tool", "execute", params or {}, options, function)


def prompt(function=None, *, params=None, **options):
    return _decorate("Prompt", "get", params or {}, options, function)


def resource(uri, **options):
    return _decorate("Resource", "read", {}, dict(options, uri=uri), None)


def offer(connect, **options):
    """Offer everything of this page, now and later, and return the connection that `connect` of client.js created."""
    return default_toolbox.join(connect(to_javascript(options)))


def _decorate(kind, verb, params, options, function):
    given = {name: given if isinstance(given, tuple) else (given,) for name, given in params.items()}
    known = {name: _schema(*given[name]) for name in params if given[name][0] is not Context}
    defaults = {name: schema.pop("default") for name, schema in known.items() if "default" in schema}
    known.update((name, dict(known[name], default=value)) for name, value in defaults.items() if value is not None)
    needed = [name for name in known if name not in defaults]
    about = {"annotations": {HINTS[key] + "Hint": given for key, given in options.items() if key in HINTS}}
    about.update((WORDS.get(key, key), given) for key, given in options.items() if key not in HINTS)
    about["inputSchema"] = dict(type="object", properties=known, required=needed, additionalProperties=False)
    about["arguments"] = [{"name": name, "required": name in needed} for name in known]  # of a prompt
    about["omitsNull"] = [name for name in defaults if defaults[name] is None]

    def register(function):
        async def run(given, call):
            arguments = dict(defaults, **json.loads(js.JSON.stringify(call.variables if verb == "read" else given)))
            arguments.update((name, Context(call)) for name in params if name not in known)
            try:
                value = function(**arguments)
                if hasattr(value, "send"):  # of an asynchronous function
                    task = asyncio.create_task(value)
                    call.signal.addEventListener("abort", lambda *_: task.cancel())
                    value = await task
                return to_javascript(value)
            except Exception as error:
                sys.print_exception(error)  # to the console; client.js adds the tool's name
                text = str(error) if isinstance(error, ToolError) else "%s: %s" % (type(error).__name__, error)
                return js.Promise.reject(error.args[0] if isinstance(error, JsException) else js.Error.new(text))

        item = to_javascript(dict({"name": function.__name__}, **about))
        setattr(item, verb, run)
        default_toolbox.add(kind, about.get("uri", item.name), item)
        return function

    return register(function) if function else register


def _schema(given, *default):
    if not isinstance(given, dict) and given not in TYPES:
        raise TypeError("params: give a type (str, int, float, bool, list, dict), a JSON Schema or Context")
    schema = dict(given) if isinstance(given, dict) else {"type": TYPES[given]}
    return dict(schema, **{"items": {}} if given is list else {}, **{"default": default[0]} if default else {})


def to_javascript(value):
    if value is None or isinstance(value, bytes):
        return js.undefined if value is None else js.Uint8Array.new(value)
    if isinstance(value, (Image, list, tuple)):
        value = [x.block if isinstance(x, Image) else x for x in ([value] if isinstance(value, Image) else value)]
    parts, text = [("result", value)], json.dumps(value)  # dumps ends at a value that contains itself
    for path, x in parts:
        if isinstance(x, (dict, list, tuple)):
            parts += [("%s[%r]" % (path, key), x[key]) for key in (x if isinstance(x, dict) else range(len(x)))]
        elif not (x is None or isinstance(x, (str, bytes, int, bool)) or (isinstance(x, float) and x - x == 0)):
            raise ToolError("%s: %s has no JSON form. Return finite numbers, text, lists and dicts." % (path, x))
    return js.JSON.parse(text)


sys.modules[__name__ + ".page"] = sys.modules[__name__]  # where the Python package has `offer`
