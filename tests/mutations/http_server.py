"""Mutations of the defences of the HTTP server and its parsers."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "memory: free memory at the end of the heap is given back every few seconds",
        None,
        "tests/system/test_allocator.py",
    ),
    Mutation(
        "memory: the allocator returns free memory",
        "trimmer = None",
        "tests/system/test_allocator.py",
    ),
    Mutation(
        "proxies that are not trusted",
        'app = ProxyHeadersMiddleware(app, "*")',
        "tests/admission/test_oauth.py::test_forwarded_headers_of_untrusted_proxies_are_ignored",
    ),
    Mutation(
        "one door for all",
        "LISTENER_COPIES = 1",
        "tests/server/test_accept_limiter.py::test_those_who_came_during_a_long_turn_are_taken_together",
    ),
    Mutation(
        "answers when the relay stops",
        "if sockets and not self.force_exit and not self._shares_port:",
        "tests/behaviour/test_stopping.py::test_a_request_on_an_idle_connection_is_answered_while_the_relay_stops",
        lines=2,
    ),
    Mutation(
        "memory: a lost socket does not refer to itself by its scope",
        "pass",
        "tests/behaviour/test_freed_memory.py -k socket",
    ),
    Mutation(
        "memory: the parser of a lost socket is closed",
        "parser.throw",
        "tests/behaviour/test_freed_memory.py -k socket",
    ),
    Mutation(
        "stalls: a pong that waited unread is read before the socket is cut",
        "timer: Any = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)",
        "tests/behaviour/test_relay_time_jumps.py -k pong",
    ),
    Mutation(
        "frames that never end",
        "while False:",
        "tests/behaviour/test_memory_attacks.py::test_frames_that_never_end_have_a_limit_together_and_the_oldest_go_first",
    ),
    Mutation(
        "small frames that never end",
        'if self.buffered.oldest is None:\n    break\nself.buffered.oldest._fail(CLOSE_SLOW, "the message took too long while many others were read")',
        "tests/behaviour/test_memory_attacks.py::test_small_frames_that_never_end_have_a_limit_together_however_many_there_are",
    ),
    Mutation(
        "complete messages that the application has not taken yet",
        "held = unfinished + len(self._backlog)",
        "tests/peers/browsers/test_asgi_bypass.py::test_what_is_whole_counts_until_it_is_taken",
    ),
    Mutation(
        "the header of a large frame",
        "is_text = head[0] == WHOLE_TEXT and head[1] >= MASKED",
        "tests/peers/browsers/test_asgi_bypass.py::test_a_wrong_header_is_refused_before_anything_follows_it",
    ),
    Mutation(
        "a frame that is too large and comes at once",
        "return self._on_text is not None",
        "tests/peers/browsers/test_asgi_bypass.py::test_a_frame_that_is_too_large_is_refused_also_if_all_of_it_is_there",
    ),
    Mutation(
        "a large text within another message",
        "if is_text and self.conn.state is OPEN and not self.close_sent:",
        "tests/peers/browsers/test_asgi_bypass.py::test_large_frames_are_judged_as_by_the_library_alone",
    ),
    Mutation(
        "the number of waiting handshakes",
        "if False:",
        "tests/server/test_accept_limiter.py::test_when_too_many_handshakes_wait_the_next_gets_503_and_calls_are_answered",
    ),
    Mutation(
        "fragments",
        "if False:",
        "tests/behaviour/test_memory_attacks.py::test_a_message_in_tiny_fragments_ends_the_connection",
    ),
    Mutation("loop time: frames of one read", "if False:", "tests/behaviour/test_loop_floods.py -k frames"),
    Mutation(
        "clients that leave in the middle of a body",
        "with suppress(ZeroDivisionError):",
        "tests/calls/test_proof.py -k leaves",
    ),
    Mutation(
        "bytes of a frame that comes in crumbs",
        "if not self._room:\n    taken = len(data)\n    self._blocks.append(bytes(data))\n    self.cost += taken\nelif len(data) >= BLOCK:",
        "tests/server/uvicorn_adapter/test_websocket_buffers.py::test_a_buffer_takes_the_memory_that_it_counts_however_its_frame_arrives",
    ),
    Mutation(
        "what is kept of a long message beside its slices",
        "self.cost += len(data)",
        "tests/payloads/test_sliced.py::test_what_is_held_of_a_message_that_is_not_complete_counts",
    ),
    Mutation(
        "control characters in a long string",
        "self.is_bad = False",
        "tests/payloads/test_sliced.py::test_a_long_answer_that_is_none_is_refused_and_the_browser_stays",
    ),
    Mutation(
        "values of a browser's message",
        "if False:",
        "tests/behaviour/test_memory_attacks.py::test_messages_of_too_many_values_are_refused_from_both_sides",
    ),
    Mutation(
        "browsers that come all at once",
        None,
        "tests/server/test_accept_limiter.py::test_a_few_come_in_now_and_the_others_a_few_in_each_turn_in_their_order",
        lines=3,
    ),
    Mutation(
        "the header's size",
        "if False:",
        "tests/http/test_request_framing.py::test_what_is_too_large_or_unknown_is_refused_with_its_own_status",
    ),
    Mutation(
        "a trailer line without an end",
        "if False:",
        "tests/http/test_request_framing.py::test_what_is_too_large_or_unknown_is_refused_with_its_own_status",
    ),
    Mutation(
        "framing fields in a trailer",
        "if field is None:",
        "tests/http/test_request_framing.py::test_what_parsers_could_frame_differently_is_refused_however_it_is_cut",
    ),
    Mutation(
        "trailers and tiny chunks",
        "if False:",
        "tests/http/test_request_framing.py::test_what_is_too_large_or_unknown_is_refused_with_its_own_status",
    ),
    Mutation(
        "two lengths of one body",
        'if codings != [b"chunked"] or version != "1.1":',
        "tests/http/test_request_framing.py::test_what_parsers_could_frame_differently_is_refused_however_it_is_cut",
    ),
    Mutation(
        "a length that is repeated",
        "if not _LENGTH.fullmatch(lengths[0]):",
        "tests/http/test_request_framing.py::test_what_parsers_could_frame_differently_is_refused_however_it_is_cut",
    ),
    Mutation(
        "a header that never ends",
        "if False:",
        "tests/behaviour/test_limits.py::test_a_header_of_any_size_is_not_taken",
    ),
    Mutation(
        "a header that is too long is not searched",
        "if _BARE.search(data) is not None:\n    raise FramingError\nif len(data) > self._most:",
        "tests/http/test_request_framing.py -k searched",
    ),
    Mutation(
        "a client that reads nothing",
        "pass",
        "tests/behaviour/test_memory_attacks.py::test_an_answer_that_no_client_fetches_is_given_up",
    ),
    Mutation(
        "connections that say nothing",
        "victim = None",
        "tests/behaviour/test_floods.py::test_silent_connections_block_no_other_client",
    ),
    Mutation(
        "the number of connections",
        "while False:",
        "tests/behaviour/test_floods.py::test_when_all_connections_are_in_use_a_new_one_gets_an_error",
    ),
    Mutation(
        "headers that come slowly",
        "self.slots.enter(self)",
        "tests/behaviour/test_limits.py::test_a_connection_that_sends_nothing_or_half_a_header_is_closed",
        lines=2,
    ),
    Mutation(
        "bodies that come slowly",
        "pass",
        "tests/behaviour/test_floods.py::test_a_body_that_comes_byte_by_byte_is_not_waited_for",
    ),
    Mutation(
        "the end of an idle connection after a suspension",
        "if False:",
        "tests/behaviour/test_suspended_relay.py::test_a_request_that_came_on_an_idle_connection_is_answered",
    ),
    Mutation(
        "bodies that the application does not read",
        "pass  # the response came before the body was read, so it is never read",
        "tests/behaviour/test_floods.py::test_nothing_is_kept_of_an_unread_body",
    ),
    Mutation(
        "requests sent ahead",
        "if False:",
        "tests/behaviour/test_raw_requests.py::test_what_is_sent_ahead_of_an_answer_has_a_limit tests/behaviour/test_raw_requests.py::test_requests_without_a_body_that_are_sent_ahead_have_a_limit",
    ),
    Mutation(
        "idle connections when the relay stops",
        "self.finish()",
        "tests/behaviour/test_stopping.py::test_a_request_on_an_idle_connection_is_answered_while_the_relay_stops",
    ),
    Mutation(
        "a refusal on its way to a client that sends on",
        "self.transport.close()",
        "tests/behaviour/test_stopping.py::test_a_client_that_sends_on_and_reads_later_can_read_why_it_was_refused",
    ),
    Mutation(
        "connections without a token",
        "if False:",
        "tests/behaviour/test_floods.py::test_half_sent_requests_without_a_token_block_no_other_client",
    ),
    Mutation(
        "connections of calls that run",
        "return oldest",
        "tests/behaviour/test_floods.py::test_a_running_call_keeps_its_connection_while_unknown_clients_connect",
    ),
    Mutation(
        "connections that are not accepted yet when the relay stops",
        "(0x45, 0, 1, 0x00),  # is SYN set?",
        "tests/behaviour/test_stopping.py::test_a_listening_socket_that_is_about_to_close_takes_what_is_in_its_queue_and_nothing_else",
    ),
)
