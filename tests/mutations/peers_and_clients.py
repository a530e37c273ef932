"""Mutations of the defences of peers, the bus, the bridge and the conductor."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation("loop time of a widget's messages", "if False:", "tests/behaviour/test_widget_pages.py -k takes_long"),
    Mutation(
        "levels of nesting in a widget's messages",
        "return found if isinstance(found, dict) else {}",
        "tests/behaviour/test_widget_pages.py -k can_not_be_read",
    ),
    Mutation(
        "a widget that is hosted by another site than its page",
        "if False:",
        "tests/behaviour/test_widget_pages.py -k another_site_hosts",
    ),
    Mutation(
        "a widget of an origin that the user has not approved",
        "if True:",
        "tests/behaviour/test_widget_pages.py -k open_socket",
    ),
    Mutation(
        "widgets on a relay that other computers reach",
        "if False:",
        "tests/behaviour/test_widget_pages.py -k public_relay",
    ),
    Mutation(
        "bounds: widgets that ask",
        "while False:",
        "tests/behaviour/test_widget_pages.py -k asked_again",
    ),
    Mutation(
        "bounds: widgets that wait for an approval",
        "if False:",
        "tests/behaviour/test_widget_pages.py -k oldest_is_closed",
    ),
    Mutation(
        "bounds: sockets of widgets",
        "if False:",
        "tests/behaviour/test_widget_pages.py -k so_many_sockets",
    ),
    Mutation(
        "an assertion for another authorization server",
        "if False:",
        "tests/bridge/oauth/test_assertions.py -k is_not_for",
    ),
    Mutation(
        "metadata of another identity provider",
        "if False:",
        "tests/bridge/oauth/test_assertions.py -k not_the_one_that_was_named",
    ),
    Mutation(
        "bounds: requests of an editor without an answer",
        None,
        "tests/behaviour/test_table_bounds.py -k editor",
        lines=2,
    ),
    Mutation(
        "upstreams: a notification that the SDK can't parse ends no call",
        "if False:",
        "tests/behaviour/upstreams/test_hostile_messages.py -k http",
    ),
    Mutation(
        "upstreams: a progress token of many digits",
        "is_number = isinstance(value, str) and value.isascii() and value.isdecimal()",
        "tests/behaviour/upstreams/test_hostile_messages.py",
    ),
    Mutation(
        "the length of an id, in questions of upstream servers",
        "if isinstance(message, JSONRPCRequest) and (flaw := id_flaw(1)) is not None:",
        "tests/behaviour/upstreams/test_hostile_messages.py -k child",
    ),
    Mutation(
        "the length of an id, in messages of a client to the bridge",
        "if (flaw := id_flaw(1)) is not None:",
        "tests/behaviour/test_hostile_text.py -k bridge",
    ),
    Mutation(
        "plain pages: an answer on another socket of the page",
        "if False:",
        "tests/peers/browsers/test_plain_peer_sockets.py -k either",
    ),
    Mutation(
        "plain pages: a page of another principal answers nothing",
        "others = iter(self._sockets)",
        "tests/peers/browsers/test_plain_peer_sockets.py -k origin",
    ),
    Mutation(
        "take-over: the holder of a name is looked up at the hello",
        "if refusal is not None and False:\n    self._refuse_greeting(socket, refusal)",
        "tests/behaviour/test_reserved_names.py",
        lines=2,
    ),
    Mutation(
        "take-over: a name is kept during the grace",
        "if peer.is_reserved and False:",
        "tests/behaviour/test_reserved_names.py",
    ),
    Mutation(
        "another program on the port: a socket begins with a signature",
        "pass  # P6: before the worker says anything",
        "tests/calls/test_proof.py::test_a_socket_that_was_opened_with_a_proof_begins_with_the_relays_signature",
    ),
    Mutation(
        "a result of a call that a browser does not own",
        'pending_calls=self._calls_by_name.setdefault("", PendingCalls()),',
        "tests/routing/test_tool_drift.py::test_a_result_for_another_servers_call_is_ignored tests/peers/browsers/test_peer.py::test_a_result_for_a_call_that_a_browser_does_not_own_is_ignored",
    ),
    Mutation(
        "a stolen sid",
        "if known is not None or (None,) == (",
        "tests/routing/test_tool_drift.py::test_a_stolen_session_id_resumes_nothing",
    ),
    Mutation(
        "a name that another page holds",
        "if peer is None or True:",
        "tests/peers/browsers/test_peer.py::test_a_name_held_by_another_principal_is_refused_before_the_handshake",
    ),
    Mutation(
        "take-over: a browser with a tab or a call keeps its name",
        "if empty_s is None:",
        "tests/behaviour/test_released_names.py::test_a_browser_with_a_call_keeps_its_name_without_a_tab",
    ),
    Mutation(
        "take-over: another origin waits for the grace of a browser without tabs",
        "return True",
        "tests/behaviour/test_released_names.py::test_a_page_of_another_origin_waits_for_the_grace",
    ),
    Mutation(
        "a server whose tabs can't answer is not online",
        "return ONLINE",
        "tests/behaviour/test_released_names.py",
    ),
    Mutation(
        "an approval covers loopback names of the same scheme and port only",
        "found = re.match(r'(?P<scheme>https?)://(?P<name>localhost|127.0.0.1)(?P<port>.*)', origin)",
        "tests/faces/web/test_loopback_approvals.py",
    ),
    Mutation(
        "tokens that approvals of loopback names add",
        "return approved[0]",
        "tests/faces/web/test_loopback_approvals.py::test_an_approval_adds_few_tokens_by_itself",
    ),
    Mutation(
        "another user of this computer under an approved loopback name",
        "return True",
        "tests/faces/web/test_loopback_approvals.py::test_a_program_of_another_user_needs_an_approval",
    ),
    Mutation(
        "revoking an approval under each loopback name",
        "covered: set[object] = set()",
        "tests/faces/web/test_loopback_approvals.py::test_revoking_one_name_revokes_the_others_and_they_must_ask",
    ),
    Mutation(
        "text of refused pages",
        "shown, name, now = origin, server, self._clock()",
        "tests/admission/test_page_refusals.py",
    ),
    Mutation(
        "pages that the list of refusals keeps",
        "if False:",
        "tests/admission/test_page_refusals.py::test_the_list_is_bounded_and_the_latest_come_first",
    ),
    Mutation(
        "log lines about refused pages",
        "if False:",
        "tests/admission/test_page_refusals.py::test_the_log_names_the_origin_and_the_command_and_is_not_filled",
    ),
    Mutation(
        "commands with the text of refused pages",
        "if kind == 'name':",
        "tests/admission/test_page_refusals.py",
    ),
    Mutation(
        "a page at the address of each server, whether there is one or not",
        "if False:",
        "tests/behaviour/test_refused_pages.py",
    ),
    Mutation(
        "bounds: calls of names that are gone",
        "pass",
        "tests/behaviour/test_container_bounds.py::test_of_browsers_that_are_gone_no_table_of_calls_is_kept",
    ),
    Mutation("take-over: a goodbye frees a name", None, "tests/behaviour/test_reserved_names.py"),
    Mutation(
        "take-over: a name is kept while its browser has a call",
        "return False",
        "tests/behaviour/test_reserved_names.py",
    ),
    Mutation(
        "stalls: a link whose timer failed gets another one at the relay",
        "    self._timer, self._timer_due = None, 0.0\n    return\nself._pump()",
        "tests/peers/browsers/test_peer.py -k timer",
        lines=2,
    ),
    Mutation(
        "stalls: an event that fails at the relay does not end the others",
        "self._handle(event)",
        "tests/peers/browsers/test_peer.py -k fails",
    ),
    Mutation(
        "calls that find no room in a new session of their worker",
        "pending.fail(error)",
        "tests/peers/browsers/test_peer.py -k no_room",
    ),
    Mutation("the shape of a browser's note", "if False:", "tests/behaviour/test_hostile_servers.py"),
    Mutation(
        "another worker's calls",
        "return self.inst",
        "tests/peers/browsers/test_peer.py::test_a_worker_of_another_principal_or_origin_has_another_identity_whatever_it_calls_itself",
    ),
    Mutation(
        "characters of one frame",
        "if False:",
        "tests/behaviour/test_loop_limits.py::test_a_frame_that_should_have_come_in_slices_ends_the_session",
    ),
    Mutation(
        "values of a frame's header",
        "if False:",
        "tests/behaviour/test_loop_limits.py::test_a_frame_header_of_many_values_ends_the_session",
    ),
    Mutation(
        "length of a note about tabs",
        "message = (response_check.read(payload, self._max_values)) or {}",
        "tests/behaviour/test_loop_limits.py::test_a_note_about_tabs_that_is_too_long_is_dropped",
    ),
    Mutation(
        "the length of a pinned tab's id",
        "if related is not None and isinstance(tab, str | None):",
        "tests/faces/mcp/test_tab_pins.py::test_a_pin_that_is_no_tab_is_dropped",
    ),
    Mutation(
        "take-over: a browser in its grace at another relay has the name",
        "had_it = known.is_connected",
        "tests/behaviour/nodes/test_reserved_names.py",
    ),
    Mutation(
        "another program on the port: the bridge's connections are proved",
        "from tabrelay.calls.proof import ProofExchange\nreturn ClientProof(ProofExchange('x', 'y', 'z'), challenge._key)",
        "tests/behaviour/test_port_squatting.py::test_a_token_of_a_relay_by_any_other_flag_is_not_sent_either",
    ),
    Mutation(
        "another program on the port: tokens that other flags give",
        "return key_of(token) if address.is_relay else None",
        "tests/behaviour/test_port_squatting.py::test_a_token_of_a_relay_by_any_other_flag_is_not_sent_either",
    ),
    Mutation(
        "strings of a frame header: ids on the pipes of an editor and its agent",
        "if True:",
        "tests/behaviour/acp/test_malformed_messages.py -k repeated",
    ),
    Mutation("a message of the bus that can't be handled", "except ZeroDivisionError:", "tests/bus/test_members.py"),
    Mutation(
        "values of a message in one frame",
        'if "\\n" in payload or "\\r" in payload:',
        "tests/behaviour/test_loop_limits.py::test_a_small_message_of_too_many_values_is_refused",
    ),
    Mutation(
        "values of a plain page's message",
        "if False:",
        "tests/behaviour/test_loop_limits.py::test_an_answer_of_a_plain_page_with_too_many_values_fails_its_call_at_once",
    ),
    Mutation(
        "values of a process's message",
        "if False:\n    message = to_message(await parse(line, self._limits.values))",
        "tests/peers/upstreams/test_large_messages.py -k process",
        lines=2,
    ),
    Mutation(
        "values of an HTTP server's message", "if False:", "tests/peers/upstreams/test_large_messages.py -k over_http"
    ),
    Mutation(
        "loop time: large messages of upstream servers are not the SDK's",
        "LARGE: Final = 1 << 30",
        "tests/behaviour/upstreams/test_loop_time.py -k stdio",
    ),
    Mutation(
        "values of an HTTP server's event",
        "return response",
        "tests/peers/upstreams/test_large_messages.py -k over_http",
    ),
    Mutation(
        "loop time: long answers from the bus are not decoded",
        "if True:",
        "tests/behaviour/nodes/test_loop_time.py -k not_decoded",
    ),
    Mutation(
        "bridge's loop time: large messages are parsed in a thread",
        "LARGE: Final = 1 << 40",
        "tests/behaviour/bridge/test_loop_time.py",
    ),
    Mutation(
        "conductor's loop time: messages of an MCP program",
        "message = AcpMessage.read(line)",
        "tests/behaviour/acp/test_loop_time.py -k connection",
    ),
    Mutation(
        "conductor's loop time: members of a message",
        "if False:\n    message.locate()",
        "tests/behaviour/acp/test_loop_time.py -k thread_that_parses_it",
        lines=2,
    ),
    Mutation(
        "conductor's loop time: members of a message out of an envelope",
        "if False:",
        "tests/behaviour/acp/test_loop_time.py -k thread",
    ),
    Mutation(
        "requests of other relays when this one stops",
        "return",
        "tests/faces/nodes/test_leader.py",
    ),
    Mutation(
        "bridge's loop time: lines of one read", "if False:", "tests/behaviour/bridge/test_loop_time.py -k bridge"
    ),
    Mutation(
        "questions of an upstream server",
        "if (why := None) is not None:",
        "tests/routing/test_question_limits.py::test_open_questions_of_an_upstream_during_one_call_are_bounded",
    ),
    Mutation(
        "questions whose call is not known yet",
        "if False:",
        "tests/routing/test_question_limits.py::test_a_bounded_number_of_questions_wait_until_their_call_is_known",
    ),
    Mutation(
        "bounds: subscriptions of a plain page's callers",
        "if (refusal := None) is not None:",
        "tests/behaviour/test_container_bounds.py::test_a_plain_page_is_asked_for_no_more_subscriptions_than_a_caller_may_have",
    ),
    Mutation(
        "bounds: messages on the bus that are not whole",
        "if sum(one.size for one in mine.values()) > MAX_UNFINISHED:",
        "tests/behaviour/test_container_bounds.py::test_the_number_of_incomplete_messages_of_a_node_is_bounded",
    ),
    Mutation(
        "bounds: messages that the bus has not taken",
        "return True",
        "tests/bus/test_nats_queue.py",
    ),
    Mutation(
        "bounds: answers that the bus has not taken",
        "if self.is_up and len(data) <= self.max_payload:",
        "tests/bus/test_nats_queue.py",
    ),
    Mutation(
        "bounds: changes of subscriptions that the bus has not taken",
        "if False:",
        "tests/bus/test_nats_queue.py::test_too_many_changes_of_subscriptions_end_the_connection",
    ),
    Mutation(
        "bounds: unread messages of a subscription",
        None,
        "tests/behaviour/test_table_bounds.py::test_the_number_of_unread_messages_of_a_subscription_is_bounded",
    ),
    Mutation(
        "conductor's loop time: large requests of an agent of the handshake era",
        "outer.call.values = None",
        "tests/behaviour/acp/test_loop_time.py::test_an_agent_of_the_handshake_era",
    ),
    Mutation(
        "conductor's loop time: large answers to an agent of the handshake era",
        "values = None",
        "tests/behaviour/acp/test_loop_time.py::test_an_agent_of_the_handshake_era",
    ),
    Mutation(
        "notifications that an agent does not read",
        "self._tasks.start(self._write(self._announced.popleft()))",
        "tests/acp/test_legacy_agent.py",
    ),
    Mutation(
        "loop time: long notifications of a modern server are not parsed",
        "if False:",
        "tests/translation/test_to_modern.py",
    ),
)
