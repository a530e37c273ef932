"""The example on another origin: its files and the loader on its own port, and one link to it on the relay's."""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tabrelay.assets.files import Assets
from tabrelay.faces.web.example_site import ROUTE, ExampleSite
from tests.support.asgi_client import Answer, request

RELAY, EXAMPLE = "http://127.0.0.1:4747", "http://127.0.0.1:4748"


class RelayBehindExample:
    """Stands in for the relay: answers every request and reports that it was reached."""

    fast_path = "the fast path"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("the relay")(scope, receive, send)


async def ask(path: str, *, port: int = 4748, method: str = "GET", host: str = "127.0.0.1:4748") -> Answer:
    # The port that a request came in on is the one of `asgi_client`, 4747.
    site = ExampleSite(
        RelayBehindExample(), Assets.find(), port=4747 if port == 4748 else 1, address=EXAMPLE, relay_url=RELAY
    )
    return await request(site, method, path, [("Host", host)])


async def test_its_port_has_the_files_of_the_example_and_a_loader_for_this_relay() -> None:
    page = await ask("/")
    assert page.status == 200 and b"A note on another origin" in page.body
    assert page.header("cross-origin-resource-policy") == "same-origin"
    loader = await ask("/tabrelay.js")
    assert f'RELAY = "{RELAY}"'.encode() in loader.body
    assert (loader.header("content-type") or "").startswith("text/javascript")
    for file in ("/notes.js", "/notes.css"):
        assert (await ask(file)).status == 200


async def test_its_port_has_nothing_of_the_relay() -> None:
    for path in ("/demo", "/-/client.js", "/-/demo/", "/-/status", "/index.html", "/../todo/todo.js", ROUTE):
        answer = await ask(path)
        assert answer.status == 404 and b"the relay's pages" in answer.body.lower(), path
    assert (await ask("/demo", method="POST")).status == 405


async def test_it_refuses_another_name_of_its_address() -> None:
    for host in ("localhost:4748", "example.com", "127.0.0.1:4747"):
        assert (await ask("/", host=host)).status == 421


async def test_the_relays_port_has_a_link_to_it_and_is_otherwise_unchanged() -> None:
    link = await ask(ROUTE, port=4747)
    assert (link.status, link.header("location")) == (307, f"{EXAMPLE}/")
    for method, path in (("GET", "/-/demo/"), ("POST", ROUTE), ("GET", "/")):
        assert (await ask(path, port=4747, method=method)).body == b"the relay"
    site = ExampleSite(RelayBehindExample(), Assets.find(), port=4748, address=EXAMPLE, relay_url=RELAY)
    assert site.fast_path == "the fast path"
