"""Mutations of the console: what is captured, how much of it, and who reads it."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

CAPTURED: Final = "tests/behaviour/console/test_captured_calls.py"

MUTATIONS: Final = (
    Mutation(
        "times that a worker reports",
        "return seconds",
        "tests/wire/test_call_times.py::test_what_is_read_of_any_report_is_in_order",
    ),
    Mutation(
        "time stamps of a worker",
        "if False:",
        "tests/wire/test_call_times.py::test_stamps_that_were_never_sent_are_ignored",
    ),
    Mutation(
        "calls whose times are taken",
        "if False:",
        "tests/transport/test_measured_calls.py::test_the_times_of_so_many_calls_are_taken",
    ),
    Mutation(
        "loop time of a batch of rows",
        "if False:",
        "tests/observe/capture/test_call_capture.py -k in_batches",
    ),
    Mutation(
        "loop time of captured names",
        "if False:",
        "tests/observe/capture/test_call_capture.py -k long_names",
    ),
    Mutation(
        "memory of captured calls",
        "while False:",
        f"{CAPTURED}::test_the_ring_has_a_size_and_a_number_of_calls",
    ),
    Mutation(
        "a console that reads slowly",
        "if False:",
        "tests/observe/capture/test_feed.py::test_a_reader_that_does_not_read_gets_a_bounded_part_and_is_told",
    ),
    Mutation(
        "consoles that are open",
        "if False:",
        f"{CAPTURED}::test_a_stream_ends_with_the_relay_and_there_are_so_many",
    ),
    Mutation(
        "calls that are captured in a second",
        "self._room = float(self._rows_s)",
        f"{CAPTURED}::test_of_too_many_calls_a_part_is_captured_and_the_stream_says_so",
    ),
    Mutation(
        "credentials in captured headers",
        'return {raw.decode("latin-1"): value for raw, value in headers.items()}',
        f"{CAPTURED}::test_secrets_in_arguments_results_and_headers_are_redacted",
        lines=6,
    ),
    Mutation(
        "captured calls of a server that the principal may not see",
        "if call is None:",
        f"{CAPTURED}::test_a_token_for_other_servers_reads_nothing_of_this_one",
    ),
)
