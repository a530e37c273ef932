"""Does a test fail when a defence is taken away? `python -m tests.mutations` takes each away and looks.

Not a part of `make test`, which it would make much longer: it runs a few tests for each row, on a copy of the files
that git knows. Each row takes one defence of the threat table in docs/security.md out, by replacing a text that must be
there exactly once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
RELAY: Final = "relay/tabrelay"
WORKER: Final = "browser_pkg/tabserver"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`tests`: of which one at least must fail."""

    what: str
    file: str
    before: str
    after: str
    tests: str


AS_BEFORE: Final = "test_with_the_header_of_the_call_before_a_body_is_understood_as_on_the_ordinary_way"


def _m(what: str, file: str, before: str, after: str, *tests: str) -> Mutation:
    return Mutation(what, file, before, after, " ".join(f"tests/{name}" for name in tests))


MUTATIONS: Final = (
    *(
        _m(f"memory: {what}", f"{RELAY}/{file}", before, after, test)
        for what, file, before, after, test in (
            (
                "the allocator is told to give free memory back",
                "runner.py",
                "    limit_free_memory()\n    calm_collector()",
                "    calm_collector()",
                "relay/test_allocator.py",
            ),
            (
                "the user's settings of the allocator are kept",
                "allocator.py",
                " or _is_chosen(environ):",
                ":",
                "relay/test_allocator.py",
            ),
            (
                "a lost socket does not refer to itself by its scope",
                "sockets.py",
                '            self.scope["extensions"].pop(CONDUIT, None)',
                "            pass",
                "relay/test_garbage.py -k socket",
            ),
            (
                "the parser of a lost socket is closed",
                "sockets.py",
                "        parser.close()",
                "        parser.throw",
                "relay/test_garbage.py -k socket",
            ),
            (
                "a writer that is done does not refer to itself",
                "peers/writer.py",
                "            self.on_slow = _ignore",
                "            pass",
                "relay/test_garbage.py -k socket",
            ),
            (
                "a known client takes no more memory than its description",
                "faces/modern.py",
                "_new_caller)(principal, about.decode())",
                "_new_caller)(principal, about)",
                "relay/test_container_bounds.py -k clients",
            ),
        )
    ),
    *(
        _m(f"half-open: {what}", file, before, after, test)
        for what, file, before, after, test in (
            (
                "the watchdog is shorter than the grace",
                f"{WORKER}/wire/limits.py",
                "    return 2.5 * heartbeat_s",
                "    return 4.0 * heartbeat_s",
                "tabserver/test_half_open.py -k outage",
            ),
            (
                "the grace is long enough for a worker to come back",
                f"{RELAY}/config.py",
                '        60.0, "a lost link',
                '        40.0, "a lost link',
                "tabserver/test_half_open.py -k outage",
            ),
            (
                "the worker knows the heartbeat of its relay",
                f"{WORKER}/wire/link.py",
                'and frame.get("beat_ms"):',
                "and False:",
                "tabserver/test_half_open.py",
            ),
        )
    ),
    *(
        _m(f"take-over: {what}", f"{RELAY}/peers/{file}", before, after, test)
        for what, file, before, after, test in (
            (
                "the holder of a name is looked up at the hello",
                "door.py",
                "        if refusal is not None:\n            self._refuse_greeting(",
                "        if refusal is not None and False:\n            self._refuse_greeting(",
                "relay/test_reserved_names.py",
            ),
            (
                "a name is kept during the grace",
                "door.py",
                "        if peer.is_reserved:",
                "        if peer.is_reserved and False:",
                "relay/test_reserved_names.py",
            ),
            (
                "a goodbye frees a name",
                "tab.py",
                "                self._has_left = True\n",
                "",
                "relay/test_reserved_names.py",
            ),
            (
                "a name is kept while its browser has a call",
                "tab.py",
                "return any(call.method != LISTEN and call.caller.principal != RELAY for call in calls)",
                "return False",
                "relay/test_reserved_names.py",
            ),
            (
                "a browser in its grace at another relay has the name",
                "atlas.py",
                "had_it = known.is_there or (is_other and known.is_reserved)",
                "had_it = known.is_there",
                "backplane/test_reserved_names.py",
            ),
        )
    ),
    *(
        _m(f"stalls: {what}", file, before, after, *tests)
        for what, file, before, after, *tests in (
            (
                "a timer that another one has ended is not handled",
                f"{WORKER}/wire/link.py",
                "            if due is None or due > now:\n                continue\n",
                "            assert due is not None\n",
                "wire/test_link.py",
            ),
            (
                "the time in which a relay stalled is no part of a session's grace",
                f"{WORKER}/wire/link.py",
                "        if not is_late:\n            self._grace_left -= 1",
                "        self._grace_left = -1 if is_late else self._grace_left - 1",
                "wire/test_link.py",
            ),
            (
                "frames that waited unread are read before the socket is given up",
                f"{WORKER}/wire/link.py",
                "self._looks_left = LOOKS\n",
                "self._looks_left = 1\n",
                "wire/test_link.py",
            ),
            (
                "a link whose timer failed gets another one at the relay",
                f"{RELAY}/peers/tab.py",
                "= self._loop.call_at(due, self._fire), due\n        self._pump()",
                "= None, 0.0\n            return\n        self._pump()",
                "relay/test_tab.py -k timer",
            ),
            (
                "an event that fails at the relay does not end the others",
                f"{RELAY}/peers/tab.py",
                "self._handle_safely(event)",
                "self._handle(event)",
                "relay/test_tab.py -k fails",
            ),
            (
                "a link whose timer failed gets another one in the worker",
                f"{WORKER}/line.py",
                "self._call_later(RETRY_TIMER_S, lambda: self._ring(retry_at))",
                "pass",
                "tabserver/test_reconnect.py -k timer",
            ),
            (
                "a pong that waited unread is read before the socket is cut",
                f"{RELAY}/sockets.py",
                "PatientTimer(self.loop, self.ping_timeout, self.keepalive_timeout)",
                "self.loop.call_later(self.ping_timeout, self.keepalive_timeout)",
                "relay/test_time_jumps.py -k pong",
            ),
            (
                "the time of day is set back, and idle sessions are put away",
                f"{RELAY}/faces/sessions.py",
                "session.last_used = min(session.last_used, now)",
                "pass",
                "relay/test_sessions.py -k set_back",
            ),
            (
                "the time of day is set, and the worker's waits go on",
                f"{WORKER}/browser.py",
                "return steady_ms(js.performance.timeOrigin + js.performance.now(), now_s)",
                "return lambda: time.time() * 1000",
                "relay/test_time_jumps.py -k time_of_day",
            ),
            (
                "a close has room where nothing else has",
                f"{WORKER}/wire/sender.py",
                'all_size > limits.replay_bytes) and kind != "close":',
                "all_size > limits.replay_bytes):",
                "wire/test_link.py",
            ),
        )
    ),
    *(
        _m(f"calls that JavaScript carries out: {what}", f"{WORKER}/{file}", before, after, f"tabserver/{tests}")
        for what, file, before, after, tests in (
            (
                "a change takes back all grants",
                "hub.py",
                "self._made = None\n        self.revoke()",
                "self._made = None",
                "test_express.py",
            ),
            (
                "an audience takes back all grants",
                "hub.py",
                "self._presence.watch(tab)\n            self.revoke()",
                "self._presence.watch(tab)",
                "test_express.py",
            ),
            ("their number", "js/express.js", " || call.seq !== this.#next", "", "test_express_js.py"),
            ("their channel", "js/express.js", "call.channel === grant.channel", "true", "test_express_js.py"),
            ("whose answer it is", "js/express.js", " || under.grant.port !== port", "", "test_express_js.py"),
            ("a tab by name", "js/plain.js", " || Object.hasOwn(given, TAB_ARGUMENT)", "", "test_express_js.py"),
            (
                "nothing else is said",
                "js/plain.js",
                " || Object.keys(said.params).length !== 3",
                "",
                "test_express_js.py",
            ),
            ("another caller", "js/plain.js", "frame.slice(beginning.length, end)", '""', "test_express_js.py"),
            ("what stands before", "js/plain.js", "!request.startsWith(before) || ", "", "test_express_js.py"),
            ("what stands behind", "js/plain.js", " || !request.endsWith(after)", "", "test_express_js.py"),
            (
                "arguments that are JSON",
                "js/plain.js",
                "!isRecord(given) || Object.hasOwn",
                "Object.hasOwn",
                "test_express_js.py",
            ),
            (
                "a key that stands there twice",
                "js/plain.js",
                'here.key !== "" && spans.has(name)',
                "false",
                "test_express_js.py",
            ),
            ("what was acknowledged", "js/express.js", " || call.upto >= this.#turn", "", "test_express_js.py"),
            ("how far behind", "js/express.js", " || this.#letters >= MOST_LETTERS", "", "test_express_js.py"),
            (
                "told before a frame",
                "js/express.js",
                "    this.settle();\n    this.#granted",
                "    this.#granted",
                "test_express_js.py",
            ),
            (
                "told before a page",
                "js/shim.js",
                "    express.settle();\n    if (data.t",
                "    if (data.t",
                "test_express_js.py",
            ),
            (
                "told before the end",
                "js/shim.js",
                "    express.settle();\n    closed(",
                "    closed(",
                "test_express_js.py",
            ),
            (
                "told before others send",
                "line.py",
                "        self.catch_up()\n        now = self",
                "        now = self",
                "test_express.py",
            ),
            (
                "told before all else ends",
                "traffic.py",
                "        self.catch_up()\n        for plain",
                "        for plain",
                "test_express.py",
            ),
            (
                "told before a change",
                "express.py",
                "            self.catch_up()\n            self._grants = []",
                "            self._grants = []",
                "test_express.py",
            ),
            (
                "a channel that is open",
                "express.py",
                "if self._line.is_open(channel):",
                "if False:",
                "test_express.py",
            ),
            (
                "a channel that is open, answered",
                "express.py",
                "is_sound and not line.is_open(channel)",
                "is_sound",
                "test_express.py",
            ),
            (
                "more than was said",
                "wire/link.py",
                "        if upto > sender.last:\n            return False",
                "",
                "test_express.py",
            ),
            (
                "room to keep answers",
                "wire/sender.py",
                "return self.last + 1 if has_room else 0",
                "return self.last + 1",
                "test_express.py",
            ),
        )
    ),
    *(
        _m(f"another program on the port: {what}", f"{RELAY}/{file}", before, after, f"relay/{tests}")
        for what, file, before, after, tests in (
            (
                "the relay's signature is checked",
                "proof.py",
                "if not is_formed or not hmac.compare_digest(exchange.relay_signature(self._key), str(signature)):",
                "if not is_formed:",
                "test_proof.py::test_a_program_that_does_not_know_the_key_proves_nothing",
            ),
            (
                "the address is signed",
                "proof.py",
                "return _encode(_mac(key, side, self.authority, self.client_nonce, self.relay_nonce))",
                "return _encode(_mac(key, side, self.client_nonce, self.relay_nonce))",
                "test_squatting.py::test_a_program_that_passes_the_challenge_on_to_another_relay_of_the_user_gets_nothing",
            ),
            (
                "no other address is signed",
                "faces/proving.py",
                "if authority not in self._authorities:",
                "if False:",
                "test_squatting.py::test_a_program_that_passes_the_challenge_on_to_another_relay_of_the_user_gets_nothing",
            ),
            (
                "a proof is of one process",
                "tokens.py",
                "proof.Issuer(shared or secrets.token_bytes(32), self._wall)",
                'proof.Issuer(b"x" * 32, self._wall)',
                "test_proof.py::test_a_proof_ends_with_its_token_with_its_time_and_with_the_relay",
            ),
            (
                "a proof has an end",
                "proof.py",
                "if not -SKEW_S <= age_s <= self._life_s:",
                "if False:",
                "test_proof.py::test_a_proof_ends_with_its_token_with_its_time_and_with_the_relay",
            ),
            (
                "a proof is signed by the client",
                "tokens.py",
                " or not shown.is_signed_by(holder.key)",
                "",
                "test_proof.py::test_a_proof_that_was_changed_anywhere_is_none",
            ),
            (
                "a worker may serve only",
                "grants.py",
                "Holder(derived, replace(principal, scopes=frozenset({SERVE})), grant)",
                "Holder(derived, principal, grant)",
                "test_proof.py::test_the_key_of_a_worker_may_serve_and_nothing_else",
            ),
            (
                "a page's proof is of its origin",
                "tokens.py",
                "if grant is not None and origin is not None and grant.origin is not None and origin != grant.origin:",
                "if False:",
                "test_proof.py::test_a_proof_of_a_page_counts_for_its_origin_only",
            ),
            (
                "the bridge's connections are proved",
                "bridge/proven.py",
                "return challenge.verify(*answer)",
                "from tabrelay.proof import Exchange\n    return ClientProof(Exchange('x', 'y', 'z'), challenge._key)",
                "test_squatting.py::test_a_token_of_a_relay_by_any_other_flag_is_not_sent_either",
            ),
            (
                "tokens that other flags give",
                "bridge/upstream.py",
                "return key_of(token) if address.is_relay or is_relay_token(token) else None",
                "return key_of(token) if address.is_relay else None",
                "test_squatting.py::test_a_token_of_a_relay_by_any_other_flag_is_not_sent_either",
            ),
            (
                "the other loopback address",
                "loopback.py",
                "twin.bind((address, listener.getsockname()[1]))",
                "twin.bind((address, 0))",
                "test_proof.py::test_the_other_loopback_address_is_reserved",
            ),
            (
                "a socket begins with a signature",
                "peers/door.py",
                "socket.write([(signature, None)])",
                "pass",
                "test_proof.py::test_a_socket_that_was_opened_with_a_proof_begins_with_the_relays_signature",
            ),
        )
    ),
    *(
        _m(f"another program on the port: {what}", f"{WORKER}/{file}", before, after, f"tabserver/{tests}")
        for what, file, before, after, tests in (
            (
                "the worker checks the relay's signature",
                "js/proof.js",
                "if (!isFormed || answer.signature !== relays) {",
                "if (!isFormed) {",
                "test_proof_js.py::test_another_program_is_told_apart_from_the_relay",
            ),
            (
                "the worker's key is derived",
                "js/shim.js",
                "(await keysFrom(await keyOf(token))).worker",
                "(await keysFrom(await keyOf(token))).page",
                "test_proof_js.py::test_the_relay_takes_the_proofs_of_pages_and_workers_for_what_each_may_do",
            ),
            (
                "a worker's socket is signed",
                "js/shim.js",
                "if (data !== awaited) return socket.close();",
                "",
                "test_proof_js.py::test_a_socket_is_open_when_the_relay_has_signed_it_and_says_nothing_before",
            ),
        )
    ),
    _m(
        "another program on the port: a page loads no code from it",
        f"{WORKER}/js/connection.js",
        "      await this.#checkRelay();\n",
        "",
        "e2e/test_squatting.py::test_a_bundled_client_loads_no_code_from_another_program_and_comes_back_to_the_relay",
    ),
    _m(
        "another program on the port: a page's keys can't be exported",
        f"{WORKER}/js/proof.js",
        'crypto.subtle.importKey("raw", raw, HMAC, false, ["sign"])',
        'crypto.subtle.importKey("raw", raw, HMAC, true, ["sign"])',
        "e2e/test_squatting.py::test_a_token_of_an_earlier_version_is_replaced_by_keys",
    ),
    _m(
        "a foreign Origin",
        f"{RELAY}/policy.py",
        "if origin is None or origin in self.origins:",
        "if True:",
        "relay/test_policy.py::test_any_other_origin_is_forbidden",
    ),
    _m(
        "Origin null may ask",
        f"{RELAY}/gate.py",
        "if asked.is_for_asking and origin != NULL:",
        "if asked.is_for_asking:",
        "relay/test_gate.py::test_any_page_may_ask_and_nothing_more_than_that",
    ),
    _m(
        "a rebound Host in the fast lane",
        f"{RELAY}/gate.py",
        ' or self._policy.check_host(heading.headers(b"host")) is not None:',
        ":",
        "relay/test_names.py::test_a_host_in_any_other_form_is_misdirected_on_every_way",
    ),
    _m(
        "an Origin in the fast lane",
        f"{RELAY}/gate.py",
        'if asked.is_public or b"origin" in heading or',
        "if asked.is_public or",
        "relay/test_names.py::test_an_origin_in_any_other_form_is_forbidden_on_every_way",
    ),
    _m(
        "two Origin headers of a page that asks",
        f"{RELAY}/faces/pairs.py",
        'return ", ".join(value.strip() for value in request.headers.getlist("origin"))',
        'return request.headers.get("origin", "").strip()',
        "relay/test_pages.py::test_who_names_two_origins_has_none",
    ),
    _m(
        "an approval that nobody picked up",
        f"{RELAY}/pairing.py",
        "return decision if decision is not None and now < decision.until else None",
        "return decision",
        "relay/test_pages.py::test_an_approval_that_nobody_picks_up_is_worth_nothing_later",
    ),
    _m(
        "a token that several pick up",
        f"{RELAY}/faces/pairs.py",
        "        self._pairing.collect(secret, self._clock())\n",
        "",
        "relay/test_pages.py::test_of_all_that_pick_a_token_up_at_once_one_gets_it",
    ),
    _m(
        "two Origin headers",
        f"{RELAY}/gate.py",
        'origin = ", ".join(origins) if origins else None',
        "origin = origins[0] if origins else None",
        "relay/test_gate.py::test_two_origin_headers_are_as_bad_as_a_foreign_one",
    ),
    _m(
        "a rebound Host",
        f"{RELAY}/policy.py",
        'if len(values) == 1 and values[0].strip(" \\t").lower() in self.hosts:',
        "if values:",
        "relay/test_policy.py::test_any_other_host_is_misdirected",
    ),
    _m(
        "two Host headers",
        f"{RELAY}/policy.py",
        'if len(values) == 1 and values[0].strip(" \\t").lower() in self.hosts:',
        'if values and values[0].strip(" \\t").lower() in self.hosts:',
        "relay/test_policy.py::test_any_other_host_is_misdirected",
    ),
    _m(
        "deny by default",
        f"{RELAY}/gate.py",
        "            return unauthorized(asked.needs, token is not None)\n        return allows(",
        "            return ANYONE\n        return allows(",
        "relay/test_gate.py::test_every_other_route_is_closed_without_a_token",
    ),
    _m(
        "a token bound to an origin",
        f"{RELAY}/tokens.py",
        "if origin is not None and grant.origin is not None and origin != grant.origin:",
        "if False:",
        "relay/test_tokens.py::test_a_bound_token_is_unknown_to_other_origins",
    ),
    _m(
        "a paired origin with another token",
        f"{RELAY}/gate.py",
        "if is_stranger and (principal is None or principal.origin != origin):",
        "if is_stranger and principal is None:",
        "relay/test_gate.py::test_a_paired_origin_is_worth_nothing_without_its_own_token",
    ),
    _m(
        "scope and server of a token",
        f"{RELAY}/gate.py",
        "return allows(principal, asked.needs, asked.server) or principal",
        "return principal",
        "relay/test_gate.py::test_a_pages_token_may_serve_and_look_but_not_call",
    ),
    _m(
        "two tokens in one request",
        f"{RELAY}/gate.py",
        'return found[0] if len(found) == 1 else ""',
        "return found[0]",
        "relay/test_gate.py::test_two_authorization_headers_are_refused_even_if_one_is_right",
    ),
    _m(
        "tokens behind the gate",
        f"{RELAY}/gate.py",
        "inner = _without_secrets(scope)",
        "inner = {**scope}",
        "relay/test_gate.py::test_nothing_behind_the_gate_sees_a_token",
    ),
    _m(
        "safe headers on every answer",
        f"{RELAY}/outgoing.py",
        "given += [pair for pair in DEFAULT_HEADERS if pair[0] not in present]",
        "pass",
        "relay/test_gate.py::test_every_answer_has_the_safe_headers_without_doubling_the_apps",
    ),
    _m(
        "CORS for admitted origins only",
        f"{RELAY}/gate.py",
        "if asked.has_cors and origin is not None:",
        "if asked.has_cors:\n            origin = '*'",
        "relay/test_gate.py::test_an_allowed_origin_gets_cors_on_answers_and_on_refusals",
    ),
    _m(
        "an expired token",
        f"{RELAY}/tokens.py",
        "if grant is None or grant.is_over(self._wall()):\n            return None",
        "if grant is None:\n            return None",
        "relay/test_tokens.py::test_a_token_ends_at_its_time",
    ),
    _m(
        "a revoked token's streams and sockets",
        f"{RELAY}/visits.py",
        "                for visit in list(mates):\n                    visit.end()",
        "                pass",
        "relay/test_revocation.py::test_a_stream_ends_when_its_token_is_revoked",
    ),
    _m(
        "modes of the token file",
        f"{RELAY}/vault.py",
        "        os.fchmod(handle, 0o600)",
        "        pass",
        "relay/test_tokens.py::test_a_token_file_that_others_could_read_is_closed_again",
    ),
    _m(
        "the rate",
        f"{RELAY}/gate.py",
        "if isinstance(admitted, Principal) and (wait_s := self._rates.take(admitted.id, time.monotonic())):",
        "if isinstance(admitted, Principal) and (wait_s := 0.0):",
        "relay/test_flood.py::test_who_asks_too_often_is_told_when_to_come_back_and_nobody_else_is_concerned",
    ),
    _m(
        "ANSI and bidi in names",
        f"{RELAY}/inspection.py",
        "return not any(unicodedata.category(letter) in _IN_NAME for letter in text)",
        "return True",
        "relay/test_inspection.py",
    ),
    _m(
        "the length of an id, where messages enter",
        f"{WORKER}/wire/jsonrpc.py",
        "return len(value) <= MAX_ID",
        "return True",
        "relay/test_hostile_text.py",
    ),
    _m(
        "the length of an id, with the header of the call before",
        f"{RELAY}/faces/modern.py",
        "(type(id) is str and len(id) <= jsonrpc.MAX_ID)",
        "type(id) is str",
        "relay/test_hostile_text.py",
    ),
    _m(
        "the length of a header, in the sender",
        f"{WORKER}/wire/sender.py",
        "if whole - size > _MAX_TAIL:\n            raise",
        "if False:\n            raise",
        "wire/test_refused_frames.py::test_a_header_that_the_other_end_would_refuse_is_not_sent",
    ),
    *(
        _m(f"strings of a frame header: {what}", file, before, after, tests)
        for what, file, before, after, tests in (
            (
                "brackets inside them are no depth",
                f"{WORKER}/wire/frames.py",
                " > MAX_DEPTH and depth(text) > MAX_DEPTH",
                " > MAX_DEPTH",
                "wire/test_frames.py",
            ),
            (
                "a caller that the other end would refuse",
                f"{WORKER}/wire/frames.py",
                "if not text or len(text) > MAX_CALLER or is_deep(text):",
                "if not text:",
                "wire/test_frames.py",
            ),
            (
                "a channel from the bus",
                f"{RELAY}/faces/forwarding.py",
                "if peer is None or caller is None or not is_channel(channel):",
                "if peer is None or caller is None:",
                "backplane/test_cluster.py -k carry",
            ),
            (
                "ids on the pipes of an editor and its agent",
                f"{RELAY}/acp/inlet.py",
                "if frame.id_flaw is None:",
                "if True:",
                "acp/test_odd.py -k repeated",
            ),
        )
    ),
    _m(
        "half of a surrogate pair in a header",
        f"{WORKER}/wire/frames.py",
        "and not is_well_formed(json.dumps(frame, ensure_ascii=False)):",
        "and False:",
        "relay/test_hostile_text.py",
    ),
    _m(
        "a line of the call log that can't be made",
        f"{RELAY}/journal.py",
        "return None\n\n    def _put",
        "raise\n\n    def _put",
        "relay/test_hostile_text.py",
    ),
    _m(
        "the types of a server's description of itself",
        f"{RELAY}/shelf.py",
        'about = read_about(row["initialize"])',
        'about = row["initialize"]',
        "relay/test_hostile_servers.py",
    ),
    _m(
        "clients that leave in the middle of a body",
        f"{RELAY}/app.py",
        "with suppress(ClientDisconnect):",
        "with suppress(ZeroDivisionError):",
        "relay/test_proof.py -k leaves",
    ),
    _m(
        "proofs that relays of one bus share",
        f"{RELAY}/tokens.py",
        'b"client proofs", "sha256") if self._shares_proofs else None',
        'b"client proofs", "sha256") if False else None',
        "backplane/test_proofs.py",
    ),
    _m(
        "proofs of relays without a bus",
        f"{RELAY}/tokens.py",
        "proof.Issuer(shared or secrets.token_bytes(32), self._wall)",
        'proof.Issuer(shared or b"x" * 32, self._wall)',
        "backplane/test_proofs.py",
    ),
    _m(
        "the size of members beside a server's description of itself",
        f"{RELAY}/inspection.py",
        "if size + len(text) <= MAX_MEMBERS and not has_hidden",
        "if not has_hidden",
        "relay/test_inspection.py -k too_large",
    ),
    _m(
        "members of a server's description of itself that follow a large one",
        f"{RELAY}/inspection.py",
        "        if size + len(text) <= MAX_MEMBERS and",
        "        if size + len(text) > MAX_MEMBERS:\n            break\n        if",
        "relay/test_inspection.py -k too_large",
    ),
    _m(
        "calls that find no room in a new session of their worker",
        f"{RELAY}/peers/tab.py",
        "                    pending.fail(doubtful(error))",
        "                    pending.fail(error)",
        "relay/test_tab.py -k no_room",
    ),
    _m(
        "the shape of a listed tool",
        f"{RELAY}/inspection.py",
        "or _flaw_in_schemas(item, bounds) or _flaw_in_shape(item, bounds)",
        "or _flaw_in_schemas(item, bounds)",
        "relay/test_hostile_servers.py",
    ),
    _m(
        "the shape of a browser's note",
        f"{RELAY}/peers/tab.py",
        "if not isinstance(method, str) or not isinstance(params, dict):",
        "if False:",
        "relay/test_hostile_servers.py",
    ),
    *(
        _m(f"params of any type: {what}", file, before, after, tests)
        for what, file, before, after, tests in (
            (
                "where requests enter",
                f"{RELAY}/faces/message.py",
                'if (flaw := _params_flaw(message.get("params"))) is not None:',
                "if (flaw := None) is not None:",
                "relay/test_odd_requests.py -k legacy",
            ),
            (
                "answers that came before their questions",
                f"{RELAY}/translation/translator.py",
                'params.get("inputResponses", {}) if method in envelope.MAY_ASK else {})',
                'params.get("inputResponses", {}))',
                "relay/test_odd_requests.py -k plain",
            ),
            (
                "the envelope of a request in the worker",
                f"{WORKER}/messages.py",
                'if type(params.get("_meta", {})) is not dict:',
                "if False:",
                "tabserver/test_odd_messages.py",
            ),
        )
    ),
    _m(
        "a message of the bus that can't be handled",
        f"{RELAY}/backplane/cluster.py",
        "except Exception:  # the next message has nothing to do with this one",
        "except ZeroDivisionError:",
        "backplane/test_cluster.py",
    ),
    _m(
        "tools of one server",
        f"{RELAY}/inspection.py",
        "if why is None and len(kept) >= most:",
        "if False:",
        "relay/test_inspection.py",
    ),
    _m(
        "a result of a call that a browser does not own",
        f"{RELAY}/peers/door.py",
        "roster=self._rosters.setdefault(name, Roster())",
        'roster=self._rosters.setdefault("", Roster())',
        "relay/test_drift.py::test_a_result_for_another_servers_call_is_ignored",
        "relay/test_tab.py::test_a_result_for_a_call_that_a_browser_does_not_own_is_ignored",
    ),
    _m(
        "another worker's calls",
        f"{RELAY}/peers/tab.py",
        "again, lost = self._roster.claim(self.identity)",
        "again, lost = self._roster.claim(self.inst)",
        "relay/test_drift.py::test_who_calls_itself_like_the_worker_before_gets_none_of_its_calls",
    ),
    _m(
        "a stolen sid",
        f"{RELAY}/peers/door.py",
        "if known is not None and (known.server, known.principal, known.origin, known.inst) == (",
        "if known is not None or (None,) == (",
        "relay/test_drift.py::test_a_stolen_session_id_resumes_nothing",
    ),
    _m(
        "a name that another page holds",
        f"{RELAY}/peers/door.py",
        "TabPeer | SocketPeer | RemotePeer) or peer.principal == principal.id:",
        "TabPeer | SocketPeer | RemotePeer) or True:",
        "relay/test_tab.py::test_a_name_held_by_another_principal_is_refused_before_the_handshake",
    ),
    _m(
        "tools that change after their first use",
        f"{RELAY}/drift.py",
        "return bool(self.added or self.removed or self.changed)",
        "return False",
        "relay/test_drift.py::test_a_server_that_changes_after_its_first_use_is_flagged_until_it_is_accepted",
    ),
    _m(
        "the baseline over a restart",
        f"{RELAY}/drift.py",
        'if not isinstance(value, dict) or not isinstance(value.get("known"), dict):',
        "if True:",
        "relay/test_drift.py::test_it_is_remembered_over_a_restart",
    ),
    _m(
        "a session's server and principal",
        f"{RELAY}/faces/seal.py",
        'bound = hashlib.sha256(f"{server}\\0{principal}".encode()).digest()',
        'bound = b""',
        "relay/test_sessions.py::test_another_credential_can_not_rebuild_a_session",
    ),
    _m(
        "pages that ask at once",
        f"{RELAY}/pairing.py",
        "len(self.waiting(now)) < MAX_SHOWN",
        "True",
        "relay/test_pairing.py",
    ),
    _m(
        "a ticket's seal",
        f"{RELAY}/pairing.py",
        "if not hmac.compare_digest(seal, self._mac(text)):",
        "if False:",
        "relay/test_pairing.py",
    ),
    _m(
        "a refusal of a forged request blocks its origin",
        f"{RELAY}/pairing.py",
        "if len(code) != CODE_LENGTH + 1 or self._decision(code, now) is not None:",
        "if True:",
        "relay/test_pages.py::test_a_program_without_a_token_keeps_no_page_from_being_paired",
    ),
    _m(
        "an approval of a code that no page has",
        f"{RELAY}/faces/pairs.py",
        "            self._pairing.withdraw(code)\n",
        "",
        "relay/test_pages.py::test_the_approval_of_a_code_that_no_page_has_is_taken_back",
    ),
    _m(
        "a lasting approval is for one session",
        f"{WORKER}/approvals.py",
        'self.caller.session or "", owner',
        '"", owner',
        "tabserver/test_approvals.py",
    ),
    _m(
        "the status of an audience",
        f"{RELAY}/oauth/resource.py",
        "servers=_both(servers, self._audience(claims)),",
        "servers=servers,",
        "relay/test_hosted.py::test_the_status_shows_only_servers_of_the_tokens_audience",
    ),
    *(
        _m(f"hidden text: {what}", f"{RELAY}/inspection.py", before, after, "relay/test_inspection.py")
        for what, before, after in (
            ("in a list", "elif (yield from searching_json(text.decode())):", "elif False:"),
            ("in what a server says of itself", "    return _without_hidden(about)\n", "    return about\n"),
            ("names that look alike", "if other != name:", "if False:"),
            ("discovery", 'frozenset({*KEYS, "server/discover"})', "frozenset(KEYS)"),
        )
    ),
    _m(
        "children of a program that was killed",
        f"{RELAY}/process_guard.py",
        'if os.name == "posix" and not self._tell(f"+{group}\\n"):',
        "if False:",
        "relay/test_process_guard.py",
    ),
    _m(
        "a full disk uses up an approval",
        f"{RELAY}/faces/pairs.py",
        "        try:\n            # First the token",
        "        self._pairing.collect(secret, self._clock())\n        try:\n            # First the token",
        "relay/test_pages.py::test_a_token_that_can_not_be_stored_does_not_use_up_the_approval",
    ),
    _m(
        "a pairing code works once",
        f"{RELAY}/codes.py",
        "self._pending.pop(_digest(code), None)",
        "pass",
        "relay/test_tokens.py::test_a_code_works_once",
    ),
    _m(
        "a pairing code ends",
        f"{RELAY}/codes.py",
        "CodeProblem.EXPIRED if now >= found.expires_at else found",
        "found",
        "relay/test_tokens.py::test_a_code_ends_and_says_so",
    ),
    _m(
        "tokens in logs",
        f"{RELAY}/logs.py",
        '    return _SECRETS.sub(lambda found: (found["before"] or "") + "[redacted]", text)',
        "    return text",
        "relay/test_logs.py::test_json_is_one_object_a_line_without_secrets",
    ),
    _m(
        "arguments in the call log",
        f"{RELAY}/journal.py",
        "        if self.with_arguments:\n",
        "        if True:\n",
        "relay/test_journal.py::test_arguments_of_what_has_no_name_yet_are_not_written_either",
    ),
    _m(
        "the call log's size",
        f"{RELAY}/logfile.py",
        "maxBytes=max_bytes",
        "maxBytes=0",
        "relay/test_journal.py::test_the_file_is_put_aside_when_it_is_full_and_the_oldest_goes",
    ),
    _m(
        "one that puts the call log aside at a time",
        f"{RELAY}/logfile.py",
        "            if not is_alone:\n",
        "            if False:\n",
        "relay/test_journal.py::test_whoever_finds_a_file_full_that_is_just_put_aside_moves_nothing",
    ),
    _m(
        "a call log that another has put aside",
        f"{RELAY}/logfile.py",
        "            if self._is_current(self.stream):\n",
        "            if True:\n",
        "relay/test_journal.py::test_a_file_that_was_put_aside_after_it_was_found_full_is_not_put_aside_again",
    ),
    _m(
        "every call is written down",
        f"{RELAY}/switch.py",
        "if self._scribe is not None and call.method in NOTED:",
        "if False:",
        "relay/test_journal.py::test_every_call_is_one_line_with_who_what_when_and_how_it_ended",
    ),
    _m(
        "a destructive tool asks",
        f"{WORKER}/approvals.py",
        'return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True',
        "return False",
        "tabserver/test_approvals.py",
    ),
    _m(
        "only the tab that was asked answers",
        f"{WORKER}/approvals.py",
        "if question is None or question.tab is not tab:",
        "if question is None:",
        "tabserver/test_approvals.py",
    ),
    _m(
        "what a session's permission is for",
        f"{WORKER}/approvals.py",
        'return self.caller.principal, self.caller.session or "", owner, self.name, mark_of(self.item)',
        "return owner, self.name",
        "tabserver/test_approvals.py",
    ),
    _m(
        "a tool that is another one now asks again",
        f"{WORKER}/approvals.py",
        'return self.caller.principal, self.caller.session or "", owner, self.name, mark_of(self.item)',
        'return self.caller.principal, self.caller.session or "", owner, self.name',
        "tabserver/test_approvals.py",
    ),
    _m(
        "questions that are open",
        f"{WORKER}/approvals.py",
        "elif len(self._open) >= MOST_OPEN:",
        "elif False:",
        "tabserver/test_approvals.py",
    ),
    _m(
        "a question that nobody answers",
        f"{WORKER}/approvals.py",
        "        if self._open.get(call) is question:\n            self.drop(call)\n            tab, name, wait_s",
        "        if False:\n            self.drop(call)\n            tab, name, wait_s",
        "tabserver/test_approvals.py",
    ),
    _m(
        "the audience of an access token",
        f"{RELAY}/oauth/resource.py",
        "return bool(claims.audiences & meant)",
        "return True",
        "relay/test_hosted.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    _m(
        "the scopes of an access token",
        f"{RELAY}/oauth/resource.py",
        "if needs in claims.scopes:",
        "if True:",
        "relay/test_hosted.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    _m(
        "the issuer of an access token",
        f"{RELAY}/oauth/resource.py",
        "                issuer=self.issuer,\n",
        "",
        "relay/test_hosted.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    _m(
        "the signature of an access token",
        f"{RELAY}/oauth/resource.py",
        'options={"require": ["exp", "iss", "aud", "sub"], "verify_aud": False},',
        'options={"verify_signature": False},',
        "relay/test_hosted.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    _m(
        "access tokens that say they need no signature",
        f"{RELAY}/oauth/resource.py",
        "            # The audience depends on what is asked for, and is looked at there.\n",
        "            if jwt.get_unverified_header(token)['alg'] == 'none':\n"
        "                return self._read(jwt.decode(token, options={'verify_signature': False}), digest)\n",
        "relay/test_hosted.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    _m(
        "access tokens whose secret is the public key",
        f"{RELAY}/oauth/resource.py",
        "            # The audience depends on what is asked for, and is looked at there.\n",
        "            if jwt.get_unverified_header(token)['alg'] == 'HS256':\n"
        "                import hmac\n"
        "                from cryptography.hazmat.primitives import serialization as s\n"
        "                pem = key.key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)\n"
        "                said, _, mark = token.rpartition('.')\n"
        "                good = hmac.digest(pem, said.encode(), 'sha256')\n"
        "                if jwt.utils.base64url_decode(mark) == good:\n"
        "                    return self._read(jwt.decode(token, options={'verify_signature': False}), digest)\n",
        "relay/test_hosted.py::test_a_token_that_is_not_for_this_server_is_no_token",
    ),
    _m(
        "the end of an open WebSocket's token",
        f"{RELAY}/oauth/resource.py",
        "return digest in self._known and principal.expires is not None and self._wall() < principal.expires",
        "return digest in self._known",
        "relay/test_hosted.py::test_what_is_open_ends_with_its_token",
    ),
    _m(
        "a key that is gone",
        f"{RELAY}/oauth/resource.py",
        "keys.on_change = self._known.clear",
        "keys.on_change = lambda: None",
        "relay/test_hosted.py::test_a_key_that_is_gone_takes_its_tokens_along",
    ),
    _m(
        "made-up key names",
        f"{RELAY}/oauth/keys.py",
        "if now - self._tried < PAUSE_S:",
        "if False:",
        "relay/test_hosted.py::test_keys_are_fetched_once_then_again_when_a_new_one_is_named_and_never_too_often",
    ),
    _m(
        "the metadata's own issuer",
        f"{RELAY}/oauth/keys.py",
        'and about.get("issuer") == self._issuer',
        "",
        "relay/test_hosted.py::test_who_answers_for_another_issuer_and_what_is_no_public_key_is_not_believed",
    ),
    _m(
        "proxies that nobody trusts",
        f"{RELAY}/runner.py",
        "app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))",
        'app = ProxyHeadersMiddleware(app, "*")',
        "relay/test_hosted.py::test_only_a_trusted_proxy_says_how_it_was_asked",
    ),
    _m(
        "no-auth on loopback only",
        f"{RELAY}/config.py",
        "if self.public_url and self.no_auth:",
        "if False:",
        "relay/test_hosted.py::test_what_would_open_a_public_relay_is_refused",
    ),
    _m(
        "bytes of wide letters",
        f"{WORKER}/wire/payload.py",
        "return len(payload), 1 if payload.isascii() else 4",
        "return len(payload), 1",
        "relay/test_bombs.py::test_a_letter_that_widens_all_the_others_is_paid_for",
    ),
    _m(
        "frames that never end",
        f"{RELAY}/sockets.py",
        "while self.tally.total > self.budget and not self._refused:",
        "while False:",
        "relay/test_bombs.py::test_frames_that_never_end_have_a_limit_together_and_the_oldest_go_first",
    ),
    _m(
        "small frames that never end",
        f"{RELAY}/sockets.py",
        "(self.tally.oldest or self)._give_up(CLOSE_SLOW",
        "if self.tally.oldest is None:\n                break\n            self.tally.oldest._give_up(CLOSE_SLOW",
        "relay/test_bombs.py::test_small_frames_that_never_end_have_a_limit_together_however_many_there_are",
    ),
    _m(
        "bytes of a frame that comes in crumbs",
        f"{RELAY}/pieces.py",
        "if not self._room and len(data) >= BLOCK:",
        "if not self._room:\n                taken = len(data)\n                self._blocks.append(bytes(data))\n"
        "                self.cost += taken\n            elif len(data) >= BLOCK:",
        "relay/test_pieces.py::test_it_takes_as_much_as_it_says_however_it_came",
    ),
    _m(
        "whole messages that nobody has taken yet",
        f"{RELAY}/sockets.py",
        "held = unfinished + self._queued",
        "held = unfinished",
        "relay/test_conduit.py::test_what_is_whole_counts_until_it_is_taken",
    ),
    _m(
        "the header of a large frame",
        f"{RELAY}/sockets.py",
        "and head[1] >= MASKED and size <= self.config.ws_max_size",
        "and head[1] >= MASKED",
        "relay/test_conduit.py::test_what_is_wrong_in_a_header_is_refused_before_anything_follows_it",
    ),
    _m(
        "a frame that is too large and comes at once",
        f"{RELAY}/sockets.py",
        "self.on_text is not None and size <= self.config.ws_max_size",
        "self.on_text is not None",
        "relay/test_conduit.py::test_a_frame_that_is_too_large_is_refused_also_if_all_of_it_is_there",
    ),
    _m(
        "what is kept of a long message beside its slices",
        f"{RELAY}/slices.py",
        "len(data) + self._gist.cost - before",
        "len(data)",
        "relay/test_slices.py::test_what_is_held_of_a_message_that_is_not_complete_counts",
    ),
    _m(
        "control characters in a long string",
        f"{RELAY}/gist.py",
        "self.is_bad = not _is_plain(text[at:end])",
        "self.is_bad = False",
        "relay/test_slices.py::test_a_long_answer_that_is_none_is_refused_and_the_browser_stays",
    ),
    _m(
        "a large text within another message",
        f"{RELAY}/sockets.py",
        "if is_text and not self.frames and self.conn.state",
        "if is_text and self.conn.state",
        "relay/test_conduit.py::test_large_frames_are_judged_as_by_the_library_alone",
    ),
    _m(
        "browsers that come all at once",
        f"{RELAY}/turnstile.py",
        "        if not self._left:\n            self._waiting.append(come_in)\n            return False\n",
        "",
        "relay/test_turnstile.py::test_a_few_come_in_now_and_the_others_a_few_in_each_turn_in_their_order",
    ),
    _m(
        "the number of those that knock",
        f"{RELAY}/sockets.py",
        "if turnstile.waiting >= self.most_knocking:",
        "if False:",
        "relay/test_turnstile.py::test_when_too_many_knock_the_next_is_told_to_come_back_and_whoever_calls_is_answered",
    ),
    _m(
        "one door for all",
        f"{RELAY}/runner.py",
        "DOORS = 32",
        "DOORS = 1",
        "relay/test_turnstile.py::test_those_who_came_during_a_long_turn_are_taken_together",
    ),
    _m(
        "fragments",
        f"{RELAY}/sockets.py",
        "if self._fragments > MAX_FRAGMENTS:",
        "if False:",
        "relay/test_bombs.py::test_a_message_in_crumbs_ends_the_connection",
    ),
    _m(
        "values of a body",
        f"{RELAY}/faces/mailbox.py",
        "            if weight.total > self._max_values:",
        "            if False:",
        "relay/test_bombs.py::test_messages_of_too_many_values_are_refused_from_both_sides",
    ),
    _m(
        "values of a browser's message",
        f"{RELAY}/gist.py",
        "if self._weight.total > self._most or self._weight.size > MAX_KEPT:",
        "if False:",
        "relay/test_bombs.py::test_messages_of_too_many_values_are_refused_from_both_sides",
    ),
    _m(
        "values of a message in one frame",
        f"{RELAY}/peers/answer.py",
        " or is_heavy(payload, most):",
        ":",
        "relay/test_loop_limits.py::test_a_small_message_of_too_many_values_is_refused",
    ),
    _m(
        "characters of one frame",
        f"{RELAY}/peers/tab.py",
        "        if len(payload) > LARGEST_PART:",
        "        if False:",
        "relay/test_loop_limits.py::test_a_frame_that_should_have_come_in_slices_ends_the_session",
    ),
    _m(
        "values of a frame's header",
        f"{RELAY}/peers/tab.py",
        "            if is_heavy(header, MAX_HEADER_VALUES):",
        "            if False:",
        "relay/test_loop_limits.py::test_a_frame_header_of_many_values_ends_the_session",
    ),
    _m(
        "values of a plain page's message",
        f"{RELAY}/peers/conversation.py",
        "        if len(text) > LARGE and await run_in_turns(weighing(text, self._max_values)):",
        "        if False:",
        "relay/test_loop_limits.py::test_an_answer_of_a_plain_page_with_too_many_values_fails_its_call_at_once",
    ),
    _m(
        "length of a note about tabs",
        f"{RELAY}/peers/tab.py",
        " if len(said) <= MAX_OUR_NOTE else None",
        "",
        "relay/test_loop_limits.py::test_a_note_about_tabs_that_is_too_long_is_dropped",
    ),
    _m(
        "values of a process's message",
        f"{RELAY}/peers/stdio.py",
        "            if len(line) > LARGE:\n                message",
        "            if False:\n                message",
        "upstreams/test_large_messages.py -k process",
    ),
    _m(
        "values of an HTTP server's message",
        f"{RELAY}/upstreams/large_messages.py",
        "    if await run_in_turns(weighing(text, most)):",
        "    if False:",
        "upstreams/test_large_messages.py -k over_http",
    ),
    _m(
        "values of an HTTP server's event",
        f"{RELAY}/peers/http.py",
        "            return self._with_small_events(response, id)",
        "            return response",
        "upstreams/test_large_messages.py -k over_http",
    ),
    _m(
        "loop time: frames of one read",
        f"{RELAY}/sockets.py",
        "            if not left:",
        "            if False:",
        "relay/test_loop_floods.py -k frames",
    ),
    _m(
        "loop time: long work in turns",
        f"{RELAY}/loop_turns.py",
        "        if time.perf_counter() - began > TURN_S:",
        "        if False:",
        "relay/test_loop_floods.py -k long_work",
    ),
    _m(
        "loop time: large messages of upstream servers are not the SDK's",
        f"{RELAY}/upstreams/large_messages.py",
        "LARGE: Final = 64 * 1024",
        "LARGE: Final = 1 << 30",
        "upstreams/test_upstream_loop_time.py -k stdio",
    ),
    _m(
        "loop time: sessions that are told of a browser",
        f"{RELAY}/faces/briefing.py",
        "AT_ONCE: Final = 100 ",
        "AT_ONCE: Final = 10**9 ",
        "relay/test_loop_floods.py -k many_sessions",
    ),
    _m(
        "loop time: long answers from the bus are not decoded",
        f"{RELAY}/peers/returns.py",
        "    if len(payload) <= LARGE:",
        "    if True:",
        "backplane/test_bus_loop_time.py",
    ),
    _m(
        "bridge's loop time: large messages are parsed in a thread",
        f"{RELAY}/bridge/parsing.py",
        "LARGE: Final = 256 * 1024",
        "LARGE: Final = 1 << 40",
        "bridge/test_bridge_loop_time.py",
    ),
    _m(
        "bridge's loop time: lines of one read",
        f"{RELAY}/bridge/bridge.py",
        "                if number % LINES_AT_ONCE == 0:",
        "                if False:",
        "bridge/test_bridge_loop_time.py -k bridge",
    ),
    _m(
        "loop time: notifications for many callers",
        f"{RELAY}/translation/audience.py",
        " and len(text) <= MAX_ANNOUNCED else",
        " else",
        "relay/test_loop_floods.py -k many_callers",
    ),
    _m(
        "size of a list",
        f"{RELAY}/list_filter.py",
        "        if len(reply.said) > self._max_text or is_heavy(text := reply.payload, self._max_values):",
        "        if is_heavy(text := reply.payload, 10**9):",
        "relay/test_loop_limits.py::test_a_list_that_is_too_long_asks_for_pages",
    ),
    _m(
        "items of a list that are left out",
        f"{RELAY}/inspection.py",
        "            if len(flaws) >= MAX_FLAWS:",
        "            if False:",
        "relay/test_inspection.py::test_of_a_list_of_garbage_only_the_beginning_is_looked_at",
    ),
    _m(
        "unfinished messages of all links",
        f"{WORKER}/wire/receiver.py",
        "if self._budget is not None and self._budget.used + size * width > self._budget.most:",
        "if False:",
        "relay/test_flood.py::test_messages_that_are_never_finished_have_a_limit_over_all_links",
    ),
    _m(
        "the header's size",
        f"{RELAY}/request_framing.py",
        "if size > self._most:",
        "if False:",
        "relay/test_request_framing.py::test_what_is_too_large_or_unknown_is_refused_with_its_own_status",
    ),
    _m(
        "a client that reads nothing",
        f"{RELAY}/headers.py",
        "self._stall = PatientTimer(self.loop, self.stall_s, self.transport.abort)",
        "pass",
        "relay/test_bombs.py::test_an_answer_that_nobody_fetches_is_given_up",
    ),
    _m(
        "connections that say nothing",
        f"{RELAY}/headers.py",
        "victim = self.slots.victim(self, others)",
        "victim = None",
        "relay/test_flood.py::test_silent_connections_keep_nobody_out",
    ),
    _m(
        "the number of connections",
        f"{RELAY}/headers.py",
        "while len(self.connections) > self.max_connections:",
        "while False:",
        "relay/test_flood.py::test_when_all_connections_are_in_use_a_new_one_is_told_so",
    ),
    _m(
        "headers that come slowly",
        f"{RELAY}/headers.py",
        "self._arm(self.header_deadline_s)\n        self.slots",
        "self.slots",
        "relay/test_limits.py::test_a_connection_that_says_nothing_or_half_a_header_is_closed",
    ),
    _m(
        "bodies that come slowly",
        f"{RELAY}/headers.py",
        "self._arm(self.body_deadline_s)",
        "pass",
        "relay/test_flood.py::test_a_body_that_comes_byte_by_byte_is_not_waited_for",
    ),
    _m(
        "deadlines of a process that was suspended",
        f"{RELAY}/patient_timer.py",
        "max(TURN_S, min(late_s, self._wait_s))",
        "0",
        "relay/test_suspended.py",
    ),
    _m(
        "the end of an idle connection after a suspension",
        f"{RELAY}/headers.py",
        "if _has_unread(self.transport):",
        "if False:",
        "relay/test_suspended.py::test_a_request_that_came_on_an_idle_connection_is_answered",
    ),
    _m(
        "questions that a server asks one after another",
        f"{RELAY}/translation/translator.py",
        "            live.timer.cancel()\n        left_s",
        "            return\n        left_s",
        "relay/test_parking.py",
    ),
    _m(
        "dials that are given up",
        f"{WORKER}/browser.py",
        "self._controller.abort(js.Error.new(reason))",
        "self._controller.abort(reason)",
        "e2e/test_sleep.py::test_dials_that_are_given_up_while_the_relay_sleeps_raise_nothing",
    ),
    _m(
        "bodies that nobody reads",
        f"{RELAY}/headers.py",
        'self.cycle.body = b""  # the answer',
        "pass  # the answer",
        "relay/test_flood.py::test_of_a_body_that_nobody_reads_nothing_is_kept",
    ),
    _m(
        "requests sent ahead",
        f"{RELAY}/headers.py",
        "if len(self._ahead) > self.max_ahead:",
        "if False:",
        "relay/test_raw.py::test_what_is_sent_ahead_of_an_answer_has_a_limit",
        "relay/test_raw.py::test_requests_without_a_body_that_are_sent_ahead_have_a_limit",
    ),
    _m(
        "connections without a token",
        f"{RELAY}/connection_slots.py",
        "if not oldest.is_admitted:",
        "if False:",
        "relay/test_flood.py::test_half_sent_requests_without_a_token_keep_nobody_out",
    ),
    _m(
        "connections of calls that run",
        f"{RELAY}/connection_slots.py",
        "del self._strangers[oldest]",
        "return oldest",
        "relay/test_flood.py::test_a_running_call_keeps_its_connection_while_strangers_come",
    ),
    _m(
        "questions of pages that wait",
        f"{RELAY}/faces/pairs.py",
        "if len(self._held) > MOST_HELD:",
        "if False:",
        "relay/test_flood.py::test_of_the_questions_of_pages_that_want_to_be_paired_only_the_newest_wait",
    ),
    _m(
        "a trailer line without an end",
        f"{RELAY}/request_framing.py",
        "if self._overhead + len(data) - at > self._most + self._content:",
        "if False:",
        "relay/test_request_framing.py::test_what_is_too_large_or_unknown_is_refused_with_its_own_status",
    ),
    _m(
        "trailers and tiny chunks",
        f"{RELAY}/request_framing.py",
        "        if self._overhead > self._most + self._content:",
        "        if False:",
        "relay/test_request_framing.py::test_what_is_too_large_or_unknown_is_refused_with_its_own_status",
    ),
    _m(
        "two lengths of one body",
        f"{RELAY}/request_framing.py",
        "if lengths or codings",
        "if codings",
        "relay/test_request_framing.py::test_what_parsers_could_frame_differently_is_refused_however_it_is_cut",
    ),
    _m(
        "a length that is repeated",
        f"{RELAY}/request_framing.py",
        "if len(lengths) != 1 or not",
        "if not",
        "relay/test_request_framing.py::test_what_parsers_could_frame_differently_is_refused_however_it_is_cut",
    ),
    _m(
        "a header that never ends",
        f"{RELAY}/request_framing.py",
        "if len(data) > self._most:",
        "if False:",
        "relay/test_limits.py::test_a_header_of_any_size_is_not_taken",
    ),
    _m(
        "answers when the relay stops",
        f"{RELAY}/runner.py",
        "        self._stop_keeping()\n        if sockets",
        "        if sockets",
        "relay/test_stopping.py::test_a_request_on_an_idle_connection_is_answered_while_the_relay_stops",
    ),
    _m(
        "idle connections when the relay stops",
        f"{RELAY}/headers.py",
        "self.loop.call_later(self.idle_leave_s, self.timeout_keep_alive_handler)",
        "self.finish()",
        "relay/test_stopping.py::test_a_request_on_an_idle_connection_is_answered_while_the_relay_stops",
    ),
    _m(
        "connections that are not accepted yet when the relay stops",
        f"{RELAY}/listener_close.py",
        "    (0x45, 0, 1, 0x02),",
        "    (0x45, 0, 1, 0x00),",
        "relay/test_stopping.py::test_a_listening_socket_that_is_about_to_close_takes_what_is_in_its_queue_and_nothing_else",
    ),
    _m(
        "a refusal on its way to a client that sends on",
        f"{RELAY}/headers.py",
        "self.transport.write_eof()",
        "self.transport.close()",
        "relay/test_stopping.py::test_a_client_that_sends_on_and_reads_later_can_read_why_it_was_refused",
    ),
    _m(
        "calls without an answer",
        f"{RELAY}/switch.py",
        "if not self.budget.take(cost):\n            if call",
        "if False:\n            if call",
        "relay/test_bombs.py::test_calls_without_an_answer_have_a_limit_together_also_while_they_wait_for_a_browser",
    ),
    *(
        _m(
            f"a call like the one before it: {what}",
            f"{RELAY}/faces/{face}.py",
            before,
            after,
            f"relay/test_lane.py::{AS_BEFORE}",
        )
        for what, face, before, after in (
            ("another tool", "modern", ' or params.get("name") != self.name:', ":"),
            ("a forged session", "modern", "and META_ACP not in meta", ""),
            ("another client", "modern", "and meta.get(eras.META_CLIENT) == self.client", ""),
            ("a forged session, legacy", "handshake", " or META_ACP in meta:", ":"),
            ("a list", "handshake", " or method not in NOTED or", " or"),
        )
    ),
    _m(
        "values of a call that waits",
        f"{RELAY}/faces/handshake.py",
        'message["params"] = None  # it goes on as text: a great many values must not wait for the answer too',
        "pass",
        "relay/test_bombs.py::test_a_call_that_waits_for_its_answer_is_text_and_no_values",
    ),
    _m(
        "what a client says of itself",
        f"{RELAY}/faces/message.py",
        "if len(text) > MAX_ABOUT:",
        "if False:",
        "relay/test_bombs.py::test_what_a_client_says_of_itself_is_short",
    ),
    _m(
        "a notice that is being written",
        f"{RELAY}/calls.py",
        "self._taken = notice.cost",
        "self._unread -= notice.cost",
        "relay/test_bombs.py::"
        "test_a_notice_that_is_being_written_counts_until_it_is_and_wide_letters_count_as_they_are_held",
    ),
    _m(
        "subscriptions of all sessions",
        f"{RELAY}/faces/sessions.py",
        "while self._weight > self._most_subscribed and session.subscriptions:",
        "while False:",
        "relay/test_sessions.py::test_subscriptions_of_all_sessions_have_a_limit_together",
    ),
    _m(
        "calls that end by themselves",
        f"{RELAY}/calls.py",
        "done, self.on_done, self.on_pin, self.rescue, self.sift = self.on_done, None, None, None, None",
        "done = self.on_done",
        "relay/test_garbage.py",
    ),
    _m(
        "errors that end by themselves",
        f"{RELAY}/calls.py",
        "        self._failure = None  # once raised",
        "        # once raised",
        "relay/test_garbage.py",
    ),
    _m(
        "lines of the log that one server makes",
        f"{RELAY}/registry.py",
        "return not self._lines.take(what, self._clock())",
        "return True",
        "relay/test_inspection.py::test_a_server_whose_lists_change_all_the_time_does_not_fill_the_log",
    ),
    _m(
        "links in place of secrets",
        f"{RELAY}/vault.py",
        'NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)',
        "NO_LINK: Final = 0",
        "relay/test_tokens.py::test_a_link_in_place_of_a_secret_is_not_followed",
    ),
    _m(
        "links in place of the call log",
        f"{RELAY}/vault.py",
        'NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)',
        "NO_LINK: Final = 0",
        "relay/test_journal.py::test_a_link_in_place_of_the_call_log_is_not_written_through",
    ),
    _m(
        "a pipe in place of the call log",
        f"{RELAY}/logfile.py",
        "if not stat.S_ISCHR(os.fstat(handle).st_mode):",
        "if path.is_file():",
        "relay/test_journal.py::test_a_pipe_in_place_of_the_call_log_is_neither_waited_for_nor_written_to",
    ),
    _m(
        "a call log that is swapped while it is opened",
        f"{RELAY}/logfile.py",
        "if not stat.S_ISCHR(os.fstat(handle).st_mode):",
        "if path.is_file():",
        "relay/test_journal.py::test_a_file_that_is_swapped_while_it_is_opened_is_the_one_that_was_looked_at",
    ),
    _m(
        "calls that a full disk did not take",
        f"{RELAY}/journal.py",
        "return calls + lost",
        "return 0",
        "relay/test_journal.py::test_what_a_full_disk_did_not_take_is_counted_and_spoils_no_other_line",
    ),
    _m(
        "lines behind a torn one",
        f"{RELAY}/journal.py",
        "if self._is_torn and _ends_within_a_line(self.path) else text",
        "if False else text",
        "relay/test_journal.py::test_what_a_full_disk_did_not_take_is_counted_and_spoils_no_other_line",
    ),
    _m(
        "a log directory that somebody deletes",
        f"{RELAY}/logfile.py",
        "        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)\n",
        "        if not hasattr(self, 'lock'):\n"
        "            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)\n",
        "relay/test_journal.py::test_a_directory_that_somebody_deletes_is_made_again",
    ),
    _m(
        "secrets that somebody else put there",
        f"{RELAY}/vault.py",
        "return me == 0 or found.st_uid in (0, me)",
        "return True",
        "relay/test_tokens.py::test_a_token_that_somebody_else_put_there_is_none",
    ),
    _m(
        "a secret that is swapped while it is read",
        f"{RELAY}/vault.py",
        "return file.read(MOST_READ)",
        'return path.read_text(encoding="utf-8")',
        "relay/test_tokens.py::test_a_token_file_that_is_swapped_while_it_is_read_is_the_one_that_was_looked_at",
    ),
    _m(
        "directories of others' log files",
        f"{RELAY}/logfile.py",
        "path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)",
        "path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)\n        path.parent.chmod(0o700)",
        "relay/test_logs.py::test_a_log_file_elsewhere_is_private_and_its_directory_is_left_alone",
    ),
    _m(
        "a tool that changed while somebody was asked",
        f"{WORKER}/traffic.py",
        " or item is None or not asked.is_still(place.key, item, place.tab):",
        ":",
        "tabserver/test_approvals.py::test_a_tool_that_is_another_one_by_the_time_it_is_allowed_does_not_run",
    ),
    _m(
        "a tool that changed while a call waited for its page",
        f"{WORKER}/traffic.py",
        "                self._release(run, errand, place)\n",
        "                self._send(run, errand, place)\n",
        "tabserver/test_approvals.py::test_a_call_that_waited_for_its_page_asks_if_it_would_have_to_by_now",
    ),
    _m(
        "a question about what a page offered before it was left",
        f"{WORKER}/traffic.py",
        "if asked is None or not place.is_ready or",
        "if asked is None or",
        "tabserver/test_approvals.py"
        "::test_the_user_is_asked_about_what_a_page_offers_and_not_about_what_it_offered_before_it_was_left",
    ),
    _m(
        "a call that goes on with another tool",
        f"{WORKER}/traffic.py",
        "(allowed is not None and allowed.is_still(asked.name, asked.item, asked.owner))",
        "allowed is not None",
        "tabserver/test_approvals.py"
        "::test_a_call_that_goes_on_and_waited_for_its_page_does_so_with_the_tool_that_was_allowed",
    ),
    _m(
        "a state that comes back twice",
        f"{WORKER}/parking.py",
        "if until <= self._floor or number in self._until:",
        "if False:",
        "tabserver/test_asking_from_tabs.py::test_what_was_allowed_once_goes_on_once",
    ),
    _m(
        "a state of a worker before",
        f"{WORKER}/desk.py",
        'goes_on=held.get("p") == self._office.parking.place)',
        "goes_on=True)",
        "tabserver/test_asking_from_tabs.py::test_what_was_allowed_in_a_worker_before_is_asked_about_again",
    ),
    _m(
        "states that others push out",
        f"{WORKER}/parking.py",
        "if until <= self._floor or number in self._until:",
        "if number in self._until:",
        "tabserver/test_parking.py::test_what_was_spent_stays_spent_however_much_is_spent_and_little_is_remembered",
    ),
    _m(
        "a question that was answered",
        f"{WORKER}/approvals.py",
        '        del self._open[str(message["call"])]\n',
        "",
        "tabserver/test_approvals.py::test_a_question_is_answered_once",
    ),
    _m(
        "scripts in the relay's pages",
        f"{RELAY}/faces/pages.py",
        "\"default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; \"",
        "\"default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self'; img-src *; \"",
        "relay/test_pages.py::test_own_pages_have_a_policy_that_runs_no_inline_script",
        "e2e/test_content.py::test_a_page_that_tries_something_else_is_kept_from_it_and_reported",
    ),
    _m(
        "a policy for what is no page",
        f"{RELAY}/outgoing.py",
        "b\"default-src 'none'; frame-ancestors 'none'\"",
        'b"default-src *"',
        "relay/test_pages.py::test_whatever_is_no_page_has_a_policy_that_lets_nothing_run",
    ),
    _m(
        "markup in the texts of tools, on the relay's page",
        f"{RELAY}/page/element.js",
        "    if (child !== null) made.append(child);",
        '    if (typeof child === "string") made.insertAdjacentHTML("beforeend", child);'
        " else if (child !== null) made.append(child);",
        "e2e/test_content.py::test_the_pages_load_from_the_relay_alone_and_markup_in_texts_stays_text",
    ),
    _m(
        "a stolen token in a page of another origin",
        f"{RELAY}/gate.py",
        "if asked.is_shared or (refusal := self._policy.check_origin(origin)) is None or origin is None:",
        "if True:",
        "e2e/test_pairing.py::test_a_page_on_another_origin_or_port_cannot_come_in_even_with_a_stolen_token",
    ),
    _m(
        "the pairing code on a command line",
        f"{RELAY}/opener.py",
        "self._open_url(self._file.as_uri())",
        "self._open_url(self._file.read_text())",
        "relay/test_cli.py::test_the_browser_is_given_a_private_file_and_never_the_code",
    ),
    _m(
        "a bus's password on a command line",
        f"{RELAY}/config.py",
        'if any("@" in url for url in urls):',
        "if False:",
        "backplane/test_workers.py::test_a_password_on_the_command_line_is_refused_and_not_repeated",
    ),
    _m(
        "a bus's password in a wrong address",
        f"{RELAY}/config.py",
        'f"bus: address {number} of {len(self.bus)} {flaw}.',
        'f"bus: {url} {flaw}.',
        "backplane/test_workers.py::test_an_address_that_can_not_be_read_is_refused_without_a_word_of_it",
    ),
    _m(
        "levels of nesting",
        f"{RELAY}/faces/mailbox.py",
        "        if is_deeper_than(value, self._max_depth):",
        "        if False:",
        "relay/test_flood.py::test_a_message_nests_64_levels_deep_and_no_more",
    ),
    _m(
        "somebody else's stream at another relay",
        f"{RELAY}/faces/handshake.py",
        "return session if is_theirs else None",
        "return session",
        "backplane/test_loan.py::test_a_relay_lends_a_stream_only_to_whom_it_belongs",
    ),
    _m(
        "the length of a pinned tab's id",
        f"{RELAY}/peers/tab.py",
        "related.on_pin is not None and is_pin(tab):",
        "related.on_pin is not None and isinstance(tab, str | None):",
        "relay/test_pins.py::test_a_pin_that_is_no_tab_is_dropped",
    ),
    _m(
        "the length of a tab's id in the worker",
        f"{WORKER}/presence.py",
        "if len(id) > MAX_TAB_ID:",
        "if False:",
        "tabserver/test_presence.py::test_a_tab_with_a_long_id_is_refused_with_the_reason",
    ),
    _m(
        "the bounds of a session's state from a file or another relay",
        f"{RELAY}/faces/diary.py",
        "tab if is_tab_id(tab) else None",
        "tab",
        "relay/test_sessions.py::test_what_another_relay_or_a_file_says_of_a_session_is_bounded",
    ),
    _m(
        "state files that a thread writes",
        f"{RELAY}/state_file.py",
        "self._start_soon(self._path, loop)",
        "self.flush()",
        "relay/test_state_file.py::test_the_event_loop_goes_on_while_a_file_is_written",
    ),
    _m(
        "a pause after each write of a state file",
        f"{RELAY}/state_file.py",
        "if wait_s > 0:",
        "if False:",
        "relay/test_state_file.py::test_after_a_long_write_there_is_a_pause",
    ),
    _m(
        "rows that another process wrote into a state file",
        f"{RELAY}/state_file.py",
        "theirs = self._foreign(path, rows)",
        "theirs: dict[str, Row] = {}",
        "relay/test_state_file.py::test_rows_of_another_process_are_kept_and_known_afterwards",
    ),
    _m(
        "a token's share of the sessions",
        f"{RELAY}/faces/sessions.py",
        "if len(mine) >= self._share and",
        "if False and",
        "relay/test_sessions.py::test_past_its_share_a_token_gives_up_its_own_longest_idle_session_and_no_one_elses",
    ),
    *(
        _m(
            f"open questions: {what}",
            f"{RELAY}/question_limits.py",
            before,
            "if False:",
            f"relay/test_questions.py::{t}",
        )
        for what, before, t in (
            (
                "of one call",
                "if self._by_call[call] >= limits.per_call:",
                "test_a_page_has_so_many_questions_open_during_one_call_and_the_call_goes_on",
            ),
            (
                "on one socket",
                "if self._count >= limits.per_connection:",
                "test_a_page_has_so_many_questions_open_on_one_socket",
            ),
            ("their size", "if self._size + size > limits.size:", "test_open_questions_have_a_size_together"),
        )
    ),
    _m(
        "questions of an upstream server",
        f"{RELAY}/upstreams/connection.py",
        "if (why := self._open.refusal(running, len(text))) is not None:",
        "if (why := None) is not None:",
        "upstreams/test_asking_limits.py::test_a_server_elsewhere_has_so_many_questions_open_during_one_call",
    ),
    _m(
        "questions whose call is not known yet",
        f"{RELAY}/upstreams/connection.py",
        "if self._unclear >= self._most_unclear:",
        "if False:",
        "upstreams/test_asking_limits.py::test_so_many_questions_wait_until_it_is_clear_which_call_they_belong_to",
    ),
    *(
        _m(f"catalogues: {what}", f"{RELAY}/{file}", before, after, f"relay/test_catalogue_budget.py::{test}")
        for what, file, before, after, test in (
            (
                "the memory of a catalogue",
                "shelf.py",
                'return len(text) + values * VALUE + text.count(b"{") * OBJECT + text.count(b"[") * ARRAY',
                "return len(text)",
                "test_a_catalogue_counts_as_the_memory_that_it_takes",
            ),
            (
                "the budget of all catalogues",
                "registry.py",
                "if self._weight > self._catalogue_budget:",
                "if False:",
                "test_catalogues_of_many_names_take_no_more_than_their_budget",
            ),
            (
                "a catalogue that is larger than the budget",
                "registry.py",
                "for entry in (*known, new):",
                "for entry in known:",
                "test_a_catalogue_that_is_larger_than_the_budget_is_not_kept",
            ),
            (
                "what is known of names that are forgotten",
                "faces/librarian.py",
                "                self._forget_others()\n",
                "                pass\n",
                "test_of_names_that_are_forgotten_nothing_is_kept",
            ),
            (
                "pages of a list without end",
                "faces/librarian.py",
                "if len(items) >= MAX_ITEMS or size > self._max_list:",
                "if False:",
                "test_of_a_list_without_end_and_a_long_introduction_the_relay_keeps_a_bounded_part",
            ),
            (
                "the cache of repeated arguments",
                "faces/mirror_cache.py",
                "if self._size > MAX_SIZE:",
                "if False:",
                "test_the_cache_of_repeated_arguments_is_bounded_and_knows_another_catalogue",
            ),
        )
    ),
    *(
        _m(f"bounds: {what}", f"{RELAY}/{file}", before, after, f"relay/test_container_bounds.py::{test}")
        for what, file, before, after, test in (
            (
                "subscriptions of a plain page's callers",
                "peers/socket.py",
                "if (refusal := self._audience.refusal(channel, uri)) is not None:",
                "if (refusal := None) is not None:",
                "test_a_plain_page_is_asked_for_no_more_subscriptions_than_a_caller_may_have",
            ),
            (
                "subscriptions of one caller",
                "translation/audience.py",
                "if self._counts[channel] >= MAX_SUBSCRIPTIONS:",
                "if False:",
                "test_a_caller_subscribes_to_so_many_resources_and_all_of_a_server_to_so_many",
            ),
            (
                "subscriptions of all callers",
                "translation/audience.py",
                "if uri not in self._subscribers and len(self._subscribers) >= MAX_URIS:",
                "if False:",
                "test_a_caller_subscribes_to_so_many_resources_and_all_of_a_server_to_so_many",
            ),
            (
                "calls of names that are gone",
                "peers/door.py",
                "            del self._rosters[name]\n",
                "            pass\n",
                "test_of_browsers_that_are_gone_no_table_of_calls_is_kept",
            ),
            (
                "messages on the bus that are not whole",
                "backplane/envelope.py",
                "if len(mine) > MAX_MESSAGES or sum",
                "if sum",
                "test_a_node_has_so_many_messages_that_are_not_whole",
            ),
            (
                "connections in a conductor's report",
                "faces/editors.py",
                "said[:MAX_CONNECTIONS]",
                "said",
                "test_what_conductors_report_is_bounded",
            ),
        )
    ),
    _m(
        "bounds: what a page offers",
        f"{WORKER}/presence.py",
        "len(tab.offers[kind]) >= MOST_OFFERS:",
        "False:",
        "tabserver/test_presence.py::test_a_page_offers_so_many_things_of_a_kind_and_may_offer_those_again",
    ),
    _m(
        "an end that is told before what came first",
        f"{RELAY}/faces/diary.py",
        "if page is None or (known is not None and known.is_ended):",
        "if page is None:",
        "backplane/test_sharing.py::test_what_is_told_late_does_not_undo_the_end_of_a_session",
    ),
    *(
        _m(f"a page that is loaded while the relay is down: {what}", f"{WORKER}/js/{file}", before, after, *tests)
        for what, file, before, after, *tests in (
            (
                "it asks again",
                "tabrelay.js",
                "for (let attempt = 0; ; attempt++) {",
                "for (let attempt = 0; attempt < 1; attempt++) {",
                "e2e/test_loading.py -k README",
            ),
            (
                "its worker keeps tabs that come before the relay's code",
                "tabrelay.js",
                "early.push(event)",
                "event",
                "e2e/test_loading.py -k README",
            ),
            (
                "a worker that failed is started again",
                "connection.js",
                '.then(() => this.#post({ t: "retry" }))',
                "",
                "e2e/test_boot.py::test_a_worker_that_failed_to_start_is_started_again_by_itself",
            ),
        )
    ),
    *(
        _m(f"a busy tab: {what}", f"{WORKER}/{file}", before, after, f"tabserver/{tests}")
        for what, file, before, after, tests in (
            (
                "a call that another tab could take waits until its tab reads",
                "traffic.py",
                "return tab is not None and place.has_rivals and tab.is_awake and not",
                "return False and not",
                "test_responsiveness.py",
            ),
            (
                "one ping at a time",
                "responsiveness.py",
                "if signs.pings <= signs.pongs:",
                "if True:",
                "test_responsiveness.py",
            ),
            (
                "an answer to an older ping shows nothing",
                "responsiveness.py",
                "is_pong and signs.is_ping_last and signs.pongs >= signs.pings",
                "is_pong",
                "test_responsiveness.py",
            ),
            (
                "a call shows nothing until it is answered",
                "tabs.py",
                "self.signs.is_ping_last = self.signs.is_current = False",
                "pass",
                "test_responsiveness.py",
            ),
            (
                "calls that JavaScript carries out wait too",
                "js/express.js",
                "(!grant.hasRivals || this.#responds(grant.port)) && ",
                "",
                "test_express_js.py",
            ),
        )
    ),
)


def _copy(place: Path) -> dict[str, str]:
    """The checkout as it is; gives the environment in which Python takes the packages from there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    for name in (".venv", "node_modules", "build"):
        (place / name).symlink_to(ROOT / name)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(place / name) for name in ("relay", "browser_pkg"))}


def _try(mutation: Mutation, place: Path, env: dict[str, str]) -> str:
    """Which tests failed; empty if none did."""
    path = place / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.before) != 1:
        raise SystemExit(f"{mutation.what}: {mutation.file} does not have it once: {mutation.before}")
    path.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests.split()]
    try:
        said = _said(command, place, env)
    finally:
        path.write_text(text, encoding="utf-8")
    failed = [line.removeprefix("FAILED ").partition(" - ")[0] for line in said.splitlines() if line[:6] == "FAILED"]
    return ", ".join(failed)


def _said(command: list[str], place: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="?", default="", help="only defences with these words in their name")
    words = parser.parse_args().words
    missed = 0
    with tempfile.TemporaryDirectory(prefix="tabrelay-mutations-") as folder:
        env = _copy(Path(folder))
        for mutation in MUTATIONS:
            if words in mutation.what:
                failed = _try(mutation, Path(folder), env)
                missed += not failed
                print(f"{mutation.what}: {failed or 'NO TEST FAILS'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
