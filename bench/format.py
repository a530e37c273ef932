"""Cost of the frame format, without sockets: the candidate formats side by side.

For each size of result: the cost of reading a frame's header and forwarding its message, with the parser of each end
(the standard library's in the worker, orjson in the relay). Then the link itself: a modern call whose request opens its
channel, beside one with separate frames for opening and closing it. The smallest of many batches counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import process_time

import orjson

from bench.table import table
from tabserver.wire import frames
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller, Greeting, Kind, Terms
from tabserver.wire.link import Link

SIZES = {"200 B": 200, "100 kB": 100_000, "1 MiB": 1024 * 1024, "8 MiB": 8 * 1024 * 1024}
HEADER = '{"t":"msg","s":1234,"a":1230,"c":"3f9a12-1c","k":"res","i":7'
CALLER = Caller(Era.MODERN, "2026-07-28", "token:3f9a12ab", {"name": "bench", "version": "1"}, {})


def best_us(action: Callable[[], object], batches: int, budget_s: float = 0.02) -> float:
    began = process_time()
    action()
    count = max(1, int(budget_s / max(process_time() - began, 1e-6)))
    best = float("inf")
    for _ in range(batches):
        began = process_time()
        for _ in range(count):
            action()
        best = min(best, (process_time() - began) / count)
    return best * 1e6


def newline(message: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Header, newline, message, as text. Each end reads the header; the relay forwards the message as bytes."""
    wire = f"{HEADER}}}\n{message}".encode()

    def relay() -> bytes:
        header, payload = frames.split(wire.decode())
        frames.decode(header)
        return (payload or "").encode()

    def worker() -> str | None:
        header, payload = frames.split(wire.decode())
        frames.decode(header)
        return payload

    return relay, worker


def binary(message: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """The same in a binary frame: the relay need not decode the message, the worker must."""
    wire = f"{HEADER}}}\n{message}".encode()

    def relay() -> bytes:
        header, _, payload = wire.partition(b"\n")
        frames.decode(header.decode())
        return payload

    def worker() -> str:
        header, _, payload = wire.partition(b"\n")
        frames.decode(header.decode())
        return payload.decode()

    return relay, worker


def nested(message: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """The message as a member of the frame: each end reads all of it, and writes it again to forward it."""
    wire = f'{HEADER},"m":{message}}}'.encode()
    return lambda: orjson.dumps(orjson.loads(wire.decode())["m"]), lambda: json.dumps(json.loads(wire.decode())["m"])


def quoted(message: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """The message as a string in the frame: nothing is written again, but every quote is escaped and unescaped."""
    wire = f'{HEADER},"m":{json.dumps(message)}}}'.encode()
    return lambda: orjson.loads(wire.decode())["m"].encode(), lambda: json.loads(wire.decode())["m"]


SHAPES = {"header, newline, message": newline, "the same, binary": binary, "message in the frame": nested}
SHAPES["message as a string in the frame"] = quoted


def message_of(size: int) -> str:
    """A result of many small values, as tools return them: a single long text would be too easy for every parser."""
    row = {"id": 17, "name": 'Grüße, "quoted"', "tags": ["a", "b"], "price": 12.5, "ok": True}
    rows = [row] * max(1, size // len(orjson.dumps(row)))
    return orjson.dumps({"jsonrpc": "2.0", "id": 7, "result": {"structuredContent": {"rows": rows}}}).decode()


class Ends:
    """Two links that are joined directly."""

    def __init__(self) -> None:
        self.relay: Link[str] = Link.accepter(Terms("sid", "epoch", "build"))
        self.worker: Link[str] = Link.dialer(Greeting("bench", "inst", "build"))
        self.count = 0
        self.relay.connected(0.0)
        self.worker.connected(0.0)
        self.exchange()

    def exchange(self) -> None:
        while moved := [(self.worker, frame) for frame in self.relay.frames()] + [
            (self.relay, frame) for frame in self.worker.frames()
        ]:
            for end, (header, payload) in moved:
                end.receive(header, payload, 0.0)
        self.relay.events()
        self.worker.events()

    def one_frame(self) -> None:
        self.count += 1
        channel = f"3f9a12-{self.count:x}"
        self.relay.send(channel, Kind.REQ, "{}", 0.0, id=1, caller=CALLER)
        self.exchange()
        self.worker.send(channel, Kind.RES, "{}", 0.0, id=1)
        self.exchange()

    def three_frames(self) -> None:
        self.count += 1
        channel = f"3f9a12-{self.count:x}"
        self.relay.open(channel, CALLER, 0.0)
        self.relay.send(channel, Kind.REQ, "{}", 0.0, id=1)
        self.exchange()
        self.worker.send(channel, Kind.RES, "{}", 0.0, id=1)
        self.exchange()
        self.relay.close(channel, "done", 0.0)
        self.exchange()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=15)
    args = parser.parse_args()
    messages = {label: message_of(size) for label, size in SIZES.items()}
    for end, place in (("relay", 0), ("worker", 1)):
        rows = [
            [name, *(f"{best_us(shape(message)[place], args.batches):,.1f}" for message in messages.values())]
            for name, shape in SHAPES.items()
        ]
        print(table([f"µs to take a result, {end}", *messages], rows), end="\n\n")
    ends = Ends()
    rows = [
        ["the request opens its channel", f"{best_us(ends.one_frame, args.batches * 4):.1f}"],
        ["open, request, close", f"{best_us(ends.three_frames, args.batches * 4):.1f}"],
    ]
    print(table(["µs of both links for a modern call", ""], rows))


if __name__ == "__main__":
    main()
