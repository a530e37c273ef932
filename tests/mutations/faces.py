"""Mutations of the defences of the relay's faces."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "the playground embeds its frame and nothing else",
        "rules = f\"{PAGE_HEADERS['Content-Security-Policy']}; frame-src 'self'\"",
        "tests/faces/web/test_playground.py -k embed_one_document",
    ),
    Mutation(
        "the playground's frame has an opaque origin",
        '"sandbox allow-scripts allow-same-origin",',
        "tests/faces/web/test_playground.py -k sandboxed_however",
    ),
    Mutation(
        "the playground's frame sends no requests",
        '"connect-src *",',
        "tests/faces/web/test_playground.py -k sandboxed_however",
    ),
    Mutation(
        "code of the playground in an opaque origin",
        'this.#frame.sandbox.value = "allow-scripts allow-same-origin";',
        "tests/e2e/test_playground.py -k only_scripts",
    ),
    Mutation(
        "the playground's programs have no WebRTC",
        "for (const name of []) Reflect.deleteProperty(globalThis, name);",
        "tests/e2e/test_playground.py -k reaches_no_token",
    ),
    Mutation(
        "a program that hangs",
        "if (false) return;",
        "tests/js/test_program_port.py -k hangs",
    ),
    Mutation(
        "bounds of calls in the playground",
        None,
        "tests/js/test_program_port.py -k calls_in_flight",
    ),
    Mutation(
        "bound of the messages of a program",
        None,
        "tests/js/test_program_port.py -k floods",
    ),
    Mutation(
        "bound of a shared program",
        "if (false) {",
        "tests/js/test_playground_programs.py -k shared_program",
    ),
    Mutation(
        "only wheels of the index are served",
        "if False:",
        "tests/cli/test_packages.py -k only_files",
    ),
    Mutation(
        "names of wheels are no paths",
        "if False:",
        "tests/cli/test_packages.py -k name_of_a_wheel",
    ),
    Mutation(
        "a wheel that differs from the one in the lock file",
        "if False:",
        "tests/cli/test_packages.py -k distribution",
    ),
    Mutation(
        "compiled wheels of other sources than a distribution",
        "if False:",
        "tests/cli/test_packages.py -k compiled_wheel",
    ),
    Mutation(
        "a redirect to an address that is not encrypted",
        "pass",
        "tests/cli/test_packages.py -k of_an_address",
    ),
    Mutation(
        "hidden files and paths that leave the folder",
        "if False:",
        "tests/assets/test_app_folder.py -k hidden",
    ),
    Mutation(
        "links that leave the folder",
        "if False:",
        "tests/assets/test_app_folder.py -k link",
    ),
    Mutation(
        "a rebound Host at the example's address",
        "if False:",
        "tests/faces/web/test_example_site.py -k another_name",
    ),
    Mutation(
        "a rebound Host at the app's address",
        "if False:",
        "tests/faces/web/test_app_site.py -k another_name",
        lines=3,
    ),
    Mutation(
        "the relay's own pages and routes are not on the app's origin",
        "if True:",
        "tests/faces/web/test_app_site.py -k own_pages",
    ),
    Mutation(
        "the app's origin is none of the relay's",
        "app_origins=app.own_origins, own_origins=self.own_origins | app.own_origins, origins=self.origins | app.origins,",
        "tests/admission/test_policy.py -k app",
    ),
    Mutation(
        "another user of this computer under the app's origin",
        "if False:",
        "tests/faces/web/test_pairing.py -k another_user_of_this_computer_is_not",
    ),
    Mutation(
        "an app gets no name of another site without a question",
        "others: list[str] = []",
        "tests/faces/web/test_pairing.py -k gets_no_name",
    ),
    Mutation(
        "memory: an ended session takes no record of its own",
        "self.records[key] = record",
        "tests/faces/mcp/test_sessions.py -k ended_session_takes",
    ),
    Mutation(
        "memory: a known client takes no more memory than its description",
        "return (_known_caller if len(about) <= MAX_KNOWN else _new_caller)(principal, about)",
        "tests/behaviour/test_container_bounds.py -k clients",
    ),
    Mutation(
        "the length of an id, with the header of the call before",
        "if type(id) is not int and type(id) is not str:",
        "tests/behaviour/test_hostile_text.py",
    ),
    Mutation(
        "a call like the one before it: another tool",
        "if type(params) is not dict:",
        "tests/server/test_fast_path.py::test_with_the_header_of_the_call_before_a_body_is_understood_as_on_the_regular_path",
    ),
    Mutation(
        "a call like the one before it: another client",
        "",
        "tests/server/test_fast_path.py::test_with_the_header_of_the_call_before_a_body_is_understood_as_on_the_regular_path",
    ),
    Mutation(
        "stalls: the time of day is set back, and idle sessions are put away",
        "pass  # the time of day was set back",
        "tests/faces/mcp/test_sessions.py -k set_back",
    ),
    Mutation(
        "subscriptions of all sessions",
        "while False:",
        "tests/faces/mcp/test_sessions.py::test_subscriptions_of_all_sessions_have_a_limit_together",
    ),
    Mutation(
        "a token's share of the sessions",
        "if False and not self._unload_oldest(mine):",
        "tests/faces/mcp/test_sessions.py::test_past_its_share_a_token_loses_its_longest_idle_session_and_no_session_of_another_token",
    ),
    Mutation(
        "another program on the port: no other address is signed",
        "if False:",
        "tests/behaviour/test_port_squatting.py::test_a_program_that_passes_the_challenge_on_to_another_relay_of_the_user_gets_nothing",
    ),
    Mutation(
        "two Origin headers of a page that asks",
        'return request.headers.get("origin", "").strip()',
        "tests/faces/web/test_pairing.py::test_who_names_two_origins_has_none",
    ),
    Mutation(
        "a token that several pick up",
        None,
        "tests/faces/web/test_pairing.py::test_of_all_that_pick_a_token_up_at_once_one_gets_it",
    ),
    Mutation(
        "an approval of a code that no page has",
        None,
        "tests/faces/web/test_pairing.py::test_the_approval_of_a_code_that_no_page_has_is_taken_back",
    ),
    Mutation(
        "a full disk uses up an approval",
        "self._pairing.collect(secret, self._clock())\ntry:\n    # First the token, then the end of the approval: a token that can't be stored does not use it up.",
        "tests/faces/web/test_pairing.py::test_a_token_that_can_not_be_stored_does_not_use_up_the_approval",
        lines=2,
    ),
    Mutation(
        "questions of pages that wait",
        "if False:",
        "tests/behaviour/test_floods.py::test_of_the_questions_of_pages_that_want_to_be_paired_only_the_newest_wait",
    ),
    Mutation(
        "strings of a frame header: a channel from the bus",
        "if peer is None or caller is None:",
        "tests/bus/test_members.py -k carry",
    ),
    Mutation(
        "params of any type: where requests enter",
        "if (flaw := None) is not None:",
        "tests/behaviour/test_odd_requests.py -k legacy",
    ),
    Mutation(
        "what a client says of itself",
        "if False:",
        "tests/behaviour/test_memory_attacks.py::test_the_description_of_a_client_is_short",
    ),
    Mutation(
        "params of any type: answers that came before their questions",
        'self._begin(outer, params, params.get("inputResponses", {}))',
        "tests/behaviour/test_odd_requests.py -k plain",
    ),
    Mutation(
        "questions that a server asks one after another",
        "if self._timer is None:\n    self._start_timer(min(COALESCE_S, self._left_s), self._quiet)",
        "tests/translation/test_question_round.py",
    ),
    Mutation(
        "loop time of a catalogue",
        'catalogue = Catalogue.from_dict({"initialize": state.about, **lists}) or Catalogue()',
        "tests/faces/mcp/test_catalogue_reader.py -k several",
        lines=2,
    ),
    Mutation(
        "memory of lists that wait for others",
        'items.append(text)\nself.__dict__.setdefault("kept", []).append(item)',
        "tests/faces/mcp/test_catalogue_reader.py -k text",
    ),
    Mutation(
        "questions of a server that pauses between them",
        "if False:",
        "tests/translation/test_question_round.py",
    ),
    Mutation(
        "a session's server and principal",
        'bound = b""',
        "tests/faces/mcp/test_sessions.py::test_another_credential_can_not_rebuild_a_session",
    ),
    Mutation(
        "values of a body",
        "if False:",
        "tests/behaviour/test_memory_attacks.py::test_messages_of_too_many_values_are_refused_from_both_sides",
    ),
    Mutation(
        "levels of nesting",
        "if False:",
        "tests/behaviour/test_floods.py::test_a_message_nests_64_levels_deep_and_no_more",
    ),
    Mutation(
        "loop time: sessions that are notified of a browser",
        "SESSIONS_AT_ONCE: Final = 10**9  # sessions in one callback of the event loop",
        "tests/behaviour/test_loop_floods.py -k many_sessions",
    ),
    Mutation(
        "loop time: notifications for many callers",
        'notice = Notice(text if text is not None else messages.text(brief) or "")',
        "tests/behaviour/test_loop_floods.py -k many_callers",
    ),
    Mutation(
        "floods: log messages outside of calls",
        "if False:",
        "tests/translation/test_background_logs.py::test_a_flood_of_messages_is_cut_and_reported",
    ),
    Mutation(
        "loop time: long log messages for many callers",
        "if text is None:",
        "tests/behaviour/upstreams/test_background_logs.py::test_a_long_message_is_replaced_by_a_note",
    ),
    Mutation(
        "bounds: subscriptions of one caller",
        "if False:",
        "tests/behaviour/test_container_bounds.py::test_subscriptions_of_a_caller_and_of_a_server_are_bounded",
    ),
    Mutation(
        "bounds: subscriptions of all callers",
        "if False:",
        "tests/behaviour/test_container_bounds.py::test_subscriptions_of_a_caller_and_of_a_server_are_bounded",
    ),
    Mutation(
        "values of a call that waits",
        "pass",
        "tests/behaviour/test_memory_attacks.py::test_a_batch_that_waits_for_its_answers_is_text_and_no_values",
    ),
    Mutation(
        "another client's stream at another relay",
        "return session",
        "tests/faces/mcp/test_remote_streams.py::test_a_relay_serves_a_stream_only_to_its_owner",
    ),
    Mutation(
        "scripts in the relay's pages",
        "\"default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self'; img-src *; \"",
        "tests/faces/web/test_routes.py::test_own_pages_have_a_policy_that_runs_no_inline_script tests/e2e/test_content.py::test_a_page_that_tries_something_else_is_kept_from_it_and_reported",
    ),
    Mutation(
        "the bounds of a session's state from a file or another relay",
        "tab,",
        "tests/faces/mcp/test_sessions.py::test_what_another_relay_or_a_file_reports_of_a_session_is_bounded",
    ),
    Mutation(
        "an end that is reported before earlier messages",
        "if record is None:",
        "tests/faces/mcp/test_bus_sync.py::test_a_late_notification_does_not_undo_the_end_of_a_session",
    ),
    Mutation(
        "catalogues: what is known of names that are forgotten",
        "pass",
        "tests/routing/test_catalogue_store.py::test_of_names_that_are_forgotten_nothing_is_kept",
    ),
    Mutation(
        "catalogues: pages of a list without end",
        "if False:",
        "tests/routing/test_catalogue_store.py::test_of_a_list_without_end_and_a_long_introduction_the_relay_keeps_a_bounded_part",
    ),
    Mutation(
        "catalogues: the cache of repeated arguments",
        "if False:",
        "tests/routing/test_catalogue_store.py::test_the_cache_of_repeated_arguments_is_bounded_and_knows_another_catalogue",
    ),
    Mutation(
        "bounds: connections in a conductor's report",
        "connections = tuple(_text(text) for text in given) if isinstance(given, list) else ()",
        "tests/behaviour/test_container_bounds.py::test_what_conductors_report_is_bounded",
    ),
    Mutation("large bodies that are not parsed yet", "size = 0", "tests/faces/mcp/test_body.py"),
    Mutation("large bodies that are parsed at the same time", "if True:", "tests/faces/mcp/test_body.py"),
)
