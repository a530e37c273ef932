"""Mutations of the defences of admission, routing, logs and settings."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "memory: a large heap is not trimmed on the event loop",
        "if False:",
        "tests/system/test_allocator.py",
    ),
    Mutation(
        "memory: the user's settings of the allocator are kept",
        'if not sys.platform.startswith("linux"):',
        "tests/system/test_allocator.py",
    ),
    Mutation(
        "half-open: the grace is long enough for a worker to come back",
        "40.0,",
        "tests/transport/test_connection.py -k outage",
    ),
    Mutation(
        "no-auth on loopback only",
        "if False:",
        "tests/admission/test_oauth.py::test_what_would_open_a_public_relay_is_refused",
    ),
    Mutation(
        "a bus's password on a command line",
        "if False:",
        "tests/server/test_workers.py::test_a_password_on_the_command_line_is_refused_and_not_repeated",
    ),
    Mutation(
        "a bus's password in a wrong address",
        'f"bus: {url} {flaw}. It must be nats://HOST[:PORT] or "',
        "tests/server/test_workers.py::test_an_address_that_can_not_be_read_is_refused_without_a_word_of_it",
    ),
    Mutation(
        "another program on the port: the relay's signature is checked",
        "if not is_formed:",
        "tests/calls/test_proof.py::test_a_program_that_does_not_know_the_key_proves_nothing",
    ),
    Mutation(
        "words of servers that a shell would expand",
        'SAFE: Final = re.compile(r".+")',
        "tests/cli/test_completion.py::test_servers_tools_and_arguments_come_from_the_last_lists",
    ),
    Mutation(
        "servers that were removed from the configuration",
        "if True:",
        "tests/behaviour/test_forgotten_servers.py::test_a_child_process_that_left_the_configuration_is_unknown_after_a_restart",
    ),
    Mutation(
        "a pid that another process has now",
        "if found is None:",
        "tests/cli/test_relays.py::test_the_record_of_a_killed_relay_is_removed_also_when_its_pid_has_another_process",
    ),
    Mutation(
        "records of relays that were killed",
        "if is_running is False:",
        "tests/cli/test_relays.py::test_a_pid_of_another_container_is_unknown_and_its_record_expires",
    ),
    Mutation(
        "signals to a process that has the pid of a relay",
        "if False:",
        "tests/cli/test_relays.py::test_a_relay_in_another_container_gets_no_signal",
    ),
    Mutation(
        "another program on the port: the address is signed",
        "return _encode(_mac(key, side, self.client_nonce, self.relay_nonce))",
        "tests/behaviour/test_port_squatting.py::test_a_program_that_passes_the_challenge_on_to_another_relay_of_the_user_gets_nothing",
    ),
    Mutation(
        "another program on the port: a proof has an end",
        "if False:",
        "tests/calls/test_proof.py::test_a_proof_ends_with_its_token_with_its_time_and_with_the_relay",
    ),
    Mutation(
        "another program on the port: a proof is of one process",
        'self._issuer = proof.ProofIssuer(b"x" * 32, self._wall)',
        "tests/calls/test_proof.py::test_a_proof_ends_with_its_token_with_its_time_and_with_the_relay",
    ),
    Mutation(
        "another program on the port: a proof is signed by the client",
        "if shown is None or holder is None:",
        "tests/calls/test_proof.py::test_a_proof_that_was_changed_anywhere_is_none",
    ),
    Mutation(
        "another program on the port: a page's proof is of its origin",
        "if False:",
        "tests/calls/test_proof.py::test_a_proof_of_a_page_counts_for_its_origin_only",
    ),
    Mutation(
        "a token bound to an origin",
        "if False:",
        "tests/admission/test_tokens.py::test_a_bound_token_is_unknown_to_other_origins",
    ),
    Mutation(
        "an expired token",
        "if issued is None:\n    return None",
        "tests/admission/test_tokens.py::test_a_token_ends_at_its_time",
        lines=2,
    ),
    Mutation(
        "proofs that relays of one bus share",
        'shared = hmac.digest(self.session_key(), b"client proofs", "sha256") if False else None',
        "tests/behaviour/nodes/test_proofs.py",
    ),
    Mutation(
        "proofs of relays without a bus",
        'self._issuer = proof.ProofIssuer(shared or b"x" * 32, self._wall)',
        "tests/behaviour/nodes/test_proofs.py",
    ),
    Mutation(
        "another program on the port: a worker may serve only",
        "found[proof.key_id(derived)] = TokenHolder(derived, principal, issued)",
        "tests/calls/test_proof.py::test_the_key_of_a_worker_may_serve_and_nothing_else",
    ),
    Mutation(
        "the call key of a page: calls and nothing else",
        "found[proof.key_id(derived)] = TokenHolder(derived, principal, issued)",
        "tests/behaviour/test_pages_call_own_servers.py",
    ),
    Mutation(
        "the call key of a page: servers of its origin only",
        "if False:",
        "tests/behaviour/test_pages_call_own_servers.py::test_a_page_reaches_no_server_of_another_principal",
    ),
    Mutation(
        "the call key of a page: a server that another origin took in the meantime",
        "if False:",
        "tests/behaviour/test_pages_call_own_servers.py::test_a_call_that_waits_does_not_reach_the_origin_that_takes_the_name",
    ),
    Mutation(
        "another program on the port: the other loopback address",
        "twin.bind((address, 0))",
        "tests/calls/test_proof.py::test_the_other_loopback_address_is_reserved",
    ),
    Mutation("a foreign Origin", "if True:", "tests/admission/test_policy.py::test_any_other_origin_is_forbidden"),
    Mutation("a rebound Host", "if values:", "tests/admission/test_policy.py::test_any_other_host_is_misdirected"),
    Mutation(
        "two Host headers",
        'if values and values[0].strip(" \\t").lower() in self.hosts:',
        "tests/admission/test_policy.py::test_any_other_host_is_misdirected",
    ),
    Mutation(
        "Origin null may ask",
        "if asked.is_for_any_origin:",
        "tests/admission/test_gate.py::test_any_page_may_ask_and_nothing_more_than_that",
    ),
    Mutation(
        "an Origin on the fast path",
        "if False:",
        "tests/server/test_fast_path.py::test_whatever_is_asked_gets_the_same_answer_on_both_ways",
    ),
    Mutation(
        "a client that does not read its stream, on the fast path",
        "if (headers := owner.stream_headers) is None:",
        "tests/server/test_fast_path_streams.py::test_a_client_that_does_not_read_gets_the_result_later",
    ),
    Mutation(
        "two Origin headers",
        "origin = origins[0] if origins else None",
        "tests/admission/test_gate.py::test_two_origin_headers_are_as_bad_as_a_foreign_one",
    ),
    Mutation(
        "deny by default",
        "    return UNAUTHENTICATED\nreturn allows(principal, asked.needs, asked.server) or principal",
        "tests/admission/test_gate.py::test_every_other_route_is_closed_without_a_token",
        lines=2,
    ),
    Mutation(
        "a paired origin with another token",
        "if is_foreign_origin and principal is None:",
        "tests/admission/test_gate.py::test_a_paired_origin_is_worth_nothing_without_its_own_token",
    ),
    Mutation(
        "scope and server of a token",
        "return principal",
        "tests/admission/test_gate.py::test_a_pages_token_may_serve_and_look_but_not_call",
    ),
    Mutation(
        "two tokens in one request",
        "return found[0]",
        "tests/admission/test_gate.py::test_two_authorization_headers_are_refused_even_if_one_is_right",
    ),
    Mutation(
        "tokens behind the gate",
        "inner = {**scope}",
        "tests/admission/test_gate.py::test_nothing_behind_the_gate_sees_a_token",
    ),
    Mutation(
        "CORS for admitted origins only",
        'cors = "*" if asked.has_cors else None',
        "tests/admission/test_gate.py::test_an_allowed_origin_gets_cors_on_answers_and_on_refusals",
    ),
    Mutation(
        "the rate",
        "is_limited = False",
        "tests/behaviour/test_floods.py::test_a_client_that_asks_too_often_gets_retry_after_and_no_other_client_is_affected",
    ),
    Mutation(
        "the path of the installation in answers to other origins",
        "return self._command",
        "tests/admission/test_gate.py::test_only_programs_and_own_pages_get_the_path_of_the_installation",
    ),
    Mutation(
        "a stolen token in a page of another origin",
        "if asked.is_shared or (refusal := None) is None or origin is None:",
        "tests/e2e/test_pairing.py::test_a_page_on_another_origin_or_port_cannot_come_in_even_with_a_stolen_token",
    ),
    Mutation(
        "an approval that was not collected",
        "return decision",
        "tests/faces/web/test_pairing.py::test_an_approval_that_is_not_collected_expires",
    ),
    Mutation(
        "pages that ask at once",
        "is_shown = now >= self._muted.get(origin, now) and (not is_new or True)",
        "tests/admission/test_pairing.py",
    ),
    Mutation("a ticket's seal", "if False:", "tests/admission/test_pairing.py"),
    Mutation(
        "a refusal of a forged request blocks its origin",
        "if True:",
        "tests/faces/web/test_pairing.py::test_a_program_without_a_token_keeps_no_page_from_being_paired",
    ),
    Mutation(
        "safe headers on every answer",
        "pass",
        "tests/admission/test_gate.py::test_every_answer_has_the_safe_headers_without_doubling_the_apps",
    ),
    Mutation(
        "a policy for what is no page",
        'CSP: Final = (b"content-security-policy", b"default-src *")',
        "tests/faces/web/test_routes.py::test_whatever_is_no_page_has_a_policy_that_lets_nothing_run",
    ),
    Mutation(
        "a revoked token's streams and sockets",
        "pass",
        "tests/behaviour/test_token_revocation.py::test_a_stream_ends_when_its_token_is_revoked",
        lines=2,
    ),
    Mutation(
        "modes of the token file",
        "pass",
        "tests/admission/test_tokens.py::test_a_token_file_that_others_could_read_is_closed_again",
    ),
    Mutation(
        "links in place of secrets",
        "NO_LINK: Final = 0",
        "tests/admission/test_tokens.py::test_a_link_in_place_of_a_secret_is_not_followed",
    ),
    Mutation(
        "links in place of the call log",
        "NO_LINK: Final = 0",
        "tests/observe/test_call_log.py::test_a_link_in_place_of_the_call_log_is_not_written_through",
    ),
    Mutation(
        "secrets that another user put there",
        "return True",
        "tests/admission/test_tokens.py::test_a_token_file_of_another_user_is_not_used",
    ),
    Mutation(
        "a secret that is swapped while it is read",
        'return path.read_text(encoding="utf-8")',
        "tests/admission/test_tokens.py::test_a_token_file_that_is_swapped_while_it_is_read_is_the_one_that_was_checked",
    ),
    Mutation("ANSI and bidi in names", "return True", "tests/payloads/test_list_checks.py"),
    Mutation(
        "the size of members beside a server's description of itself",
        "if not has_hidden_in_json(text.decode()):",
        "tests/payloads/test_list_checks.py -k too_large",
    ),
    Mutation(
        "members of a server's description of itself that follow a large one",
        "if size + len(text) > MAX_MEMBERS:\n    break\nif not has_hidden_in_json(text.decode()):",
        "tests/payloads/test_list_checks.py -k too_large",
    ),
    Mutation(
        "the shape of a listed tool",
        "return why or _flaw_in_texts(item, bounds) or _flaw_in_schemas(item, bounds)",
        "tests/behaviour/test_hostile_servers.py",
    ),
    Mutation("tools of one server", "if False:", "tests/payloads/test_list_checks.py"),
    Mutation("hidden text: in a list", "elif False:", "tests/payloads/test_list_checks.py"),
    Mutation("hidden text: in what a server says of itself", "return about", "tests/payloads/test_list_checks.py"),
    Mutation("hidden text: names that look alike", "if False:", "tests/payloads/test_list_checks.py"),
    Mutation(
        "hidden text: discovery", "CHECKED_METHODS: Final = frozenset(KEYS)", "tests/payloads/test_list_checks.py"
    ),
    Mutation(
        "items of a list that are left out",
        "if False:",
        "tests/payloads/test_list_checks.py::test_of_a_list_of_garbage_only_the_beginning_is_checked",
    ),
    Mutation(
        "a line of the call log that can't be made",
        "        raise\n\ndef _append(self, file: PrivateRotatingFile, lines: list[str], lost: int) -> int:",
        "tests/behaviour/test_hostile_text.py",
        lines=3,
    ),
    Mutation(
        "arguments in the call log",
        "if True:",
        "tests/observe/test_call_log.py::test_arguments_of_what_has_no_name_yet_are_not_written_either",
    ),
    Mutation(
        "calls that a full disk did not take",
        "return 0",
        "tests/observe/test_call_log.py::test_what_a_full_disk_did_not_take_is_counted_and_spoils_no_other_line",
    ),
    Mutation(
        "lines behind a torn one",
        'text_to_write = "\\n" + text if False else text',
        "tests/observe/test_call_log.py::test_what_a_full_disk_did_not_take_is_counted_and_spoils_no_other_line",
    ),
    Mutation(
        "the types of a server's description of itself",
        'about = row["initialize"]',
        "tests/behaviour/test_hostile_servers.py",
    ),
    Mutation(
        "catalogues: the memory of a catalogue",
        "return len(text)",
        "tests/routing/test_catalogue_store.py::test_a_catalogue_counts_as_the_memory_that_it_takes",
    ),
    Mutation(
        "tools that change after their first use",
        "return False",
        "tests/routing/test_tool_drift.py::test_a_server_that_changes_after_its_first_use_is_flagged_until_it_is_accepted",
    ),
    Mutation(
        "the baseline over a restart",
        "if True:",
        "tests/routing/test_tool_drift.py::test_the_baseline_outlives_a_restart",
    ),
    Mutation(
        "the status of an audience",
        "servers=servers,",
        "tests/admission/test_oauth.py::test_the_status_shows_only_servers_of_the_tokens_audience",
    ),
    Mutation(
        "the audience of an access token",
        "return True",
        "tests/admission/test_oauth.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    Mutation(
        "the scopes of an access token",
        "if True:",
        "tests/admission/test_oauth.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    Mutation(
        "the issuer of an access token",
        None,
        "tests/admission/test_oauth.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    Mutation(
        "the signature of an access token",
        'options={"verify_signature": False},',
        "tests/admission/test_oauth.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    Mutation(
        "access tokens that say they need no signature",
        "if jwt.get_unverified_header(token)['alg'] == 'none':\n    return self._read(jwt.decode(token, options={'verify_signature': False}), digest)",
        "tests/admission/test_oauth.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    Mutation(
        "access tokens whose secret is the public key",
        "if jwt.get_unverified_header(token)['alg'] == 'HS256':\n    import hmac\n    from cryptography.hazmat.primitives import serialization as s\n    pem = key.key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)\n    signed, _, mark = token.rpartition('.')\n    good = hmac.digest(pem, signed.encode(), 'sha256')\n    if jwt.utils.base64url_decode(mark) == good:\n        return self._read(jwt.decode(token, options={'verify_signature': False}), digest)",
        "tests/admission/test_oauth.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    Mutation(
        "the end of an open WebSocket's token",
        "return digest in self._verified",
        "tests/admission/test_oauth.py::test_what_is_open_ends_with_its_token",
    ),
    Mutation(
        "a key that is gone",
        "if False:",
        "tests/admission/test_oauth.py::test_a_key_that_is_gone_takes_its_tokens_along",
    ),
    Mutation("children of a program that was killed", "if False:", "tests/system/test_process_guard.py"),
    Mutation("a pairing code works once", "pass", "tests/admission/test_tokens.py::test_a_code_works_once"),
    Mutation(
        "a pairing code ends",
        "return found",
        "tests/admission/test_tokens.py::test_an_expired_code_is_reported_as_expired",
    ),
    Mutation(
        "tokens in logs",
        "return text",
        "tests/observe/test_log_setup.py::test_json_is_one_object_a_line_without_secrets",
    ),
    Mutation(
        "the call log's size",
        'super().__init__(path, maxBytes=0, backupCount=keep, encoding="utf-8")',
        "tests/observe/test_call_log.py::test_the_file_is_rotated_when_it_is_full_and_the_oldest_is_deleted",
    ),
    Mutation(
        "one that puts the call log aside at a time",
        "if False:",
        "tests/observe/test_log_file.py tests/observe/test_call_log.py::test_a_process_that_finds_a_full_file_during_its_rotation_renames_nothing",
    ),
    Mutation(
        "a call log that another has put aside",
        "if True:",
        "tests/observe/test_call_log.py::test_a_file_that_was_rotated_after_it_was_found_full_is_not_rotated_again",
    ),
    Mutation(
        "a pipe in place of the call log",
        "if path.is_file():",
        "tests/observe/test_call_log.py::test_a_pipe_in_place_of_the_call_log_is_neither_waited_for_nor_written_to",
    ),
    Mutation(
        "a call log that is swapped while it is opened",
        "if path.is_file():",
        "tests/observe/test_call_log.py::test_a_file_that_is_swapped_while_it_is_opened_is_the_one_that_was_checked",
    ),
    Mutation(
        "a log directory that is deleted",
        "if not hasattr(self, 'lock'):\n    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)",
        "tests/observe/test_call_log.py::test_a_directory_that_was_deleted_is_created_again",
    ),
    Mutation(
        "directories of others' log files",
        "path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)\npath.parent.chmod(0o700)",
        "tests/observe/test_log_setup.py::test_a_log_file_in_another_directory_is_private_and_the_directory_is_left_alone",
    ),
    Mutation(
        "every call is written down",
        "if False:",
        "tests/observe/test_call_log.py::test_every_call_is_one_line_with_who_what_when_and_how_it_ended",
    ),
    Mutation(
        "calls without an answer",
        "if False:",
        "tests/behaviour/test_memory_attacks.py::test_calls_without_an_answer_have_a_limit_together_also_while_they_wait_for_a_browser",
    ),
    Mutation(
        "made-up key names",
        "if False:",
        "tests/admission/test_oauth.py::test_keys_are_fetched_once_then_again_when_a_new_one_is_named_and_never_too_often",
    ),
    Mutation(
        "the metadata's own issuer",
        "",
        "tests/admission/test_oauth.py::test_metadata_of_another_issuer_and_keys_that_are_not_public_are_refused",
    ),
    Mutation("loop time: long work in turns", "if False:", "tests/behaviour/test_loop_floods.py -k long_work"),
    Mutation(
        "size of a list",
        "if is_heavy(text := reply.payload, 10**9):",
        "tests/behaviour/test_loop_limits.py::test_a_list_that_is_too_long_asks_for_pages",
    ),
    Mutation(
        "deadlines of a process that was suspended",
        "self._handle = self._loop.call_later(0, self._callback)",
        "tests/behaviour/test_suspended_relay.py",
    ),
    Mutation(
        "a notice that is being written",
        "self._unread -= notice.cost",
        "tests/behaviour/test_memory_attacks.py::test_a_notice_that_is_being_written_counts_until_it_is_and_wide_characters_count_as_they_are_held",
    ),
    Mutation(
        "errors that end by themselves",
        "# once raised it refers, by its traceback, to the waiting frames, and they to this call",
        "tests/behaviour/test_freed_memory.py",
    ),
    Mutation(
        "lines of the log that one server makes",
        "return True",
        "tests/payloads/test_list_checks.py::test_a_server_whose_lists_change_all_the_time_does_not_fill_the_log",
    ),
    Mutation(
        "catalogues: the budget of all catalogues",
        "if False:",
        "tests/routing/test_catalogue_store.py::test_catalogues_of_many_names_take_no_more_than_their_budget",
    ),
    Mutation(
        "catalogues: a catalogue that is larger than the budget",
        "for entry in known:",
        "tests/routing/test_catalogue_store.py::test_a_catalogue_that_is_larger_than_the_budget_is_not_kept",
    ),
    Mutation(
        "markup in the texts of tools, on the relay's page",
        'if (typeof child === "string") made.insertAdjacentHTML("beforeend", child); else if (child !== null) made.append(child);',
        "tests/e2e/test_content.py::test_the_pages_load_from_the_relay_alone_and_markup_in_texts_stays_text",
    ),
    Mutation(
        "the pairing code on a command line",
        "self._open_url(self._file.read_text())",
        "tests/cli/test_main.py::test_the_browser_is_given_a_private_file_and_never_the_code",
    ),
    Mutation(
        "state files that a thread writes",
        "self.flush()",
        "tests/system/test_state_file.py::test_the_event_loop_goes_on_while_a_file_is_written",
    ),
    Mutation(
        "a pause after each write of a state file",
        "if False:",
        "tests/system/test_state_file.py::test_after_a_long_write_there_is_a_pause",
    ),
    Mutation(
        "rows that another process wrote into a state file",
        "theirs: dict[str, Row] = {}",
        "tests/system/test_state_file.py::test_rows_of_another_process_are_kept_and_known_afterwards",
    ),
    Mutation(
        "open questions: of one call",
        "if False:",
        "tests/behaviour/test_plain_page_questions.py::test_open_questions_of_a_page_during_one_call_are_bounded_and_the_call_goes_on",
    ),
    Mutation(
        "open questions: on one socket",
        "if False:",
        "tests/behaviour/test_plain_page_questions.py::test_open_questions_of_a_page_on_one_socket_are_bounded",
    ),
    Mutation(
        "open questions: their size",
        "if False:",
        "tests/behaviour/test_plain_page_questions.py::test_open_questions_have_a_size_together",
    ),
    Mutation(
        "tasks of another principal in the status",
        "if False:",
        "tests/routing/test_instances.py::test_the_status_of_a_client_has_its_own_tasks_only",
    ),
    Mutation(
        "tasks of another principal at an upstream",
        "if True:",
        "tests/behaviour/upstreams/test_tasks.py",
    ),
    Mutation(
        "bounds: tasks of upstreams",
        "while False:",
        "tests/behaviour/upstreams/test_tasks.py::test_the_number_of_tasks_whose_owner_is_known_has_a_bound",
    ),
)
