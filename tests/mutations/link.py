"""Mutations of the link's defences."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "half-open: the watchdog is shorter than the grace",
        "return 4.0 * heartbeat_s",
        "tests/transport/test_connection.py -k outage",
    ),
    Mutation(
        "half-open: the worker knows the heartbeat of its relay",
        "if not self._limits.watchdog_s and False:",
        "tests/transport/test_connection.py",
    ),
    Mutation(
        "stalls: a timer that another one has ended is not handled",
        "assert due is not None",
        "tests/wire/test_link.py",
        lines=2,
    ),
    Mutation(
        "stalls: the time in which a relay stalled is no part of a session's grace",
        "self._grace_left = -1 if is_late else self._grace_left - 1",
        "tests/wire/test_link.py",
        lines=2,
    ),
    Mutation(
        "stalls: frames that waited unread are read before the socket is given up",
        "self._rechecks_left = 1",
        "tests/wire/test_link.py",
    ),
    Mutation("calls that JavaScript carries out: more than was said", "", "tests/worker/test_js_calls.py", lines=2),
    Mutation(
        "stalls: a close has room where nothing else has",
        "if (count >= limits.replay_messages or all_size > limits.replay_bytes):",
        "tests/wire/test_link.py",
    ),
    Mutation(
        "calls that JavaScript carries out: room to keep answers",
        "return self.last + 1",
        "tests/worker/test_js_calls.py",
    ),
    Mutation(
        "the length of a header, in the sender",
        'if False:\n    raise MessageTooLarge(f"a frame header of {len(tail):,} characters, at most {_MAX_TAIL:,}")',
        "tests/wire/test_link_refused_frames.py::test_a_header_that_the_other_end_would_refuse_is_not_sent",
        lines=2,
    ),
    Mutation("the length of an id, where messages enter", "return True", "tests/behaviour/test_hostile_text.py"),
    Mutation(
        "strings of a frame header: brackets inside them are no depth",
        'return text.count("[") + text.count("{") > MAX_DEPTH',
        "tests/wire/test_frames.py",
    ),
    Mutation(
        "strings of a frame header: a caller that the other end would refuse",
        "if not text:",
        "tests/wire/test_frames.py",
    ),
    Mutation(
        "half of a surrogate pair in a header",
        'if ("\\\\u" in header or not header.isascii()) and False:',
        "tests/behaviour/test_hostile_text.py",
    ),
    Mutation(
        "bytes of wide characters",
        "return len(payload), 1",
        "tests/behaviour/test_memory_attacks.py::test_a_character_that_widens_all_others_counts_against_the_budget",
    ),
    Mutation(
        "unfinished messages of all links",
        "if False:",
        "tests/behaviour/test_floods.py::test_messages_that_are_never_finished_have_a_limit_over_all_links",
    ),
)
