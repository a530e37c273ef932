"""Mutations of the console: what is captured, how much of it, and who reads it."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

CAPTURED: Final = "tests/behaviour/console/test_captured_calls.py"

FAULTS: Final = "tests/behaviour/console/test_link_faults.py"

BODIES: Final = "tests/http/test_json_body.py"
LOOP_TIME: Final = "tests/behaviour/console/test_console_loop_time.py"
SESSIONS: Final = "tests/faces/mcp/test_session_routes.py"
APP_FRAME: Final = "tests/faces/web/test_app_frame.py"

MUTATIONS: Final = (
    Mutation(
        "the page of an app has an opaque origin",
        '"sandbox allow-scripts allow-forms allow-same-origin",',
        f"{APP_FRAME} -k opaque",
    ),
    Mutation(
        "the page of an app reaches the origins that it names",
        '"connect-src *",',
        f"{APP_FRAME} -k names_the_origins",
    ),
    Mutation(
        "rules in the origins of an app",
        "found = given if isinstance(given, list) else []",
        f"{APP_FRAME} -k adds_nothing",
    ),
    Mutation(
        "the console embeds the frame of apps and nothing else",
        "rules = f\"{PAGE_CSP}; frame-src 'self'\"",
        "tests/faces/web/test_routes.py -k runs_no_inline",
    ),
    Mutation(
        "tools that are not for the page of an app",
        "if (!tool) throw new Error(name);",
        "tests/e2e/test_console_apps.py -k without_an_origin",
    ),
    Mutation(
        "size of a body of the relay's own routes", "body = await exchange.body(1 << 40, _reading, weigh)", BODIES
    ),
    Mutation("values of a body of the relay's own routes", "if False:", BODIES),
    Mutation("levels of nesting of a body of the relay's own routes", "if False:", BODIES),
    Mutation(
        "sessions of a server that the principal may not see",
        "found = self._sessions.of_server(server)",
        f"{SESSIONS} -k other_servers",
    ),
    Mutation("length of the list of sessions", "newest = found", f"{SESSIONS} -k hundred"),
    Mutation(
        "loop time of breakpoints",
        '"name": call.name or "",',
        "tests/observe/capture/test_breakpoints.py::test_no_pattern_and_no_name_take_long",
    ),
    Mutation(
        "calls that are held at the same moment",
        "if False:",
        "tests/observe/capture/test_breakpoints.py::test_calls_that_come_together_are_held_up_to_the_limit",
    ),
    Mutation("long messages that are held", "if False:", f"{LOOP_TIME}::test_messages_that_are_held"),
    Mutation(
        "loop time of details",
        "return _encoded_detail(call, self._capture.row(call))",
        f"{LOOP_TIME}::test_details_of_calls_with_long_messages",
    ),
    Mutation(
        "loop time of what a console runs",
        "server, method, params = _wanted(body, original)",
        f"{LOOP_TIME}::test_calls_that_a_console_runs_and_sends_again",
    ),
    Mutation(
        "notices and events of one captured call",
        "if len(texts) >= most or not self.is_kept:",
        "tests/observe/capture/test_captured_call.py::test_long_notices_of_a_call_have_a_size_together",
    ),
    Mutation(
        "streams of changes",
        "if False:",
        "tests/faces/web/test_app_site.py::test_the_number_of_streams_of_changes_is_bounded_and_end_with_the_relay",
    ),
    Mutation(
        "bounds: servers in a conductor's report",
        "if False:",
        "tests/behaviour/test_container_bounds.py::test_what_conductors_report_is_bounded",
    ),
    Mutation(
        "faults of links on loopback only",
        "if not settings.faults:",
        f"{FAULTS}::test_faults_are_refused_unless_the_relay_offers_them",
    ),
    Mutation(
        "the end of a delay",
        "return next((each.delay_s for each in self._delays if each.server == server), 0.0)",
        f"{FAULTS}::test_a_delay_ends_by_itself_and_is_of_one_server",
    ),
    Mutation(
        "messages that are delayed",
        "while False:",
        f"{FAULTS}::test_delayed_messages_have_a_limit_and_a_closed_socket_discards_them",
    ),
    Mutation(
        "faults of a server that the principal may not see",
        "if False:",
        f"{FAULTS}::test_what_can_not_be_injected_is_refused",
    ),
    Mutation(
        "how long a fault lasts",
        "return value",
        f"{FAULTS}::test_what_can_not_be_injected_is_refused",
    ),
    Mutation(
        "faults not on a public relay",
        "if False:",
        "tests/admission/test_oauth.py::test_what_would_open_a_public_relay_is_refused",
    ),
    Mutation(
        "held calls whose console is gone",
        None,
        "tests/behaviour/console/test_breakpoints.py::test_everything_is_released_when_the_last_console_closes_or_asks_for_it",
    ),
    Mutation(
        "calls that are held",
        "if False:",
        "tests/behaviour/console/test_breakpoints.py::test_breakpoints_and_held_calls_are_bounded",
    ),
    Mutation(
        "number of breakpoints",
        "if False:",
        "tests/behaviour/console/test_breakpoints.py::test_breakpoints_and_held_calls_are_bounded",
    ),
    Mutation(
        "the deadline of a held call",
        "async with asyncio.timeout(None):",
        "tests/behaviour/console/test_breakpoints.py::test_a_held_call_and_a_held_result_end_at_the_deadline_of_the_call",
    ),
    Mutation(
        "held calls of a server that the principal may not see",
        "return held",
        "tests/behaviour/console/test_breakpoints.py::test_a_token_for_other_servers_holds_and_sees_nothing",
    ),
    Mutation(
        "calls that consoles run",
        "if False:",
        "tests/behaviour/console/test_console_runs.py::test_what_can_not_be_run_is_refused",
    ),
    Mutation(
        "calls that a console runs at a server that the principal may not see",
        "if False:",
        "tests/behaviour/console/test_console_runs.py -k token_of_other_servers",
    ),
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
        "tests/transport/test_connection_measured_calls.py::test_the_number_of_calls_whose_times_are_taken_is_bounded",
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
        "tests/observe/capture/test_feed.py::test_a_slow_reader_gets_a_bounded_part_and_a_count_of_the_rest",
    ),
    Mutation(
        "consoles that are open",
        "if False:",
        f"{CAPTURED}::test_the_number_of_streams_is_bounded_and_each_ends_with_the_relay",
    ),
    Mutation(
        "calls that are captured in a second",
        "self._room = float(self._rows_s)",
        f"{CAPTURED}::test_of_too_many_calls_a_part_is_captured_and_the_stream_reports_it",
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
    Mutation(
        "a node that no longer asks for rows",
        "if False:",
        "tests/behaviour/nodes/test_shared_console.py::test_a_relay_that_no_longer_asks_for_rows_gets_none",
    ),
    Mutation(
        "definitions of tools that have changed",
        "if False:",
        "tests/routing/test_tool_drift.py::test_definitions_of_changed_tools_are_bounded",
    ),
)
