"""The relay's own Python of two trees, from the bytes of a request to the bytes of its answer, in two processes that
take turns.

Each process imports the product of its tree (`connection_child`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bench import stage
from bench.compare.pairs import Pairs, Sample, take_turns
from bench.compare.trees import Tree
from bench.stage import Child

WARM_UP = 2
REPEATS = 5


def run(trees: Sequence[Tree], rounds: int) -> list[Pairs]:
    here, _ = stage.cores(pin=True)
    with contextlib.ExitStack() as stack:
        children = []
        for tree in trees:
            child = Child("bench.compare.connection_child", on=here, env=tree.env)
            stack.callback(child.stop)
            children.append(child)
        pairs = [Pairs(name, kind) for name, kind in children[0].said["ways"].items()]
        for each in pairs:
            for child in children * WARM_UP:
                child.ask(each.name)
        take_turns(pairs, rounds, lambda which, what: Sample(children[which].ask(what.name)["us"]), REPEATS)
    return pairs
