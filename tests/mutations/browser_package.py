"""Mutations of the browser package's defences."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "bounds: tasks of an earlier worker",
        "if is_known:",
        "tests/mcp/test_kept_tasks.py -k bounds_of_all_tasks",
    ),
    Mutation(
        "developer tools of a page are not offered",
        "return true;",
        "tests/e2e/test_webmcp.py -k developer_tools",
    ),
    Mutation("tasks of another principal", "if task is None:", "tests/mcp/test_tasks.py -k another_principal"),
    Mutation("bounds: tasks of one principal, and of all", "if False:", "tests/mcp/test_tasks.py -k bound"),
    Mutation("bounds: results of tasks", "if False:", "tests/mcp/test_tasks.py -k do_not_fit"),
    Mutation("bounds: arguments of running tasks", "if False:", "tests/mcp/test_tasks.py -k size_together"),
    Mutation(
        "bounds: ids of tasks of upstreams",
        "if False:",
        "tests/behaviour/upstreams/test_tasks.py::test_the_number_of_tasks_whose_owner_is_known_has_a_bound",
    ),
    Mutation(
        "bounds: the time to live of a task",
        "for task in list[Task]():",
        "tests/mcp/test_tasks.py -k longer_than_its_time_to_live",
    ),
    Mutation(
        "the size of what a page says of its server",
        "if not isinstance(value, str):",
        "tests/handlers/test_identity.py::test_what_mcp_does_not_allow_is_refused_with_the_reason",
    ),
    Mutation(
        "a package that differs from the one in the index",
        'if (false) throw new Error("");',
        "tests/e2e/test_packages.py -k damaged",
    ),
    Mutation(
        "a file with an error keeps the old tools",
        "pass",
        "tests/worker/test_page_modules.py -k keeps_the_old_tools",
    ),
    Mutation(
        "two saves of a file within one second",
        'cache = "no-cache"',
        "tests/e2e/test_module_reload.py -k an_edit_is_in_force",
    ),
    Mutation(
        "stalls: a link whose timer failed gets another one in the worker",
        "pass",
        "tests/transport/test_reconnect.py -k timer",
    ),
    Mutation(
        "calls of JavaScript: reported before Python sends",
        "return change(*args)",
        "tests/worker/test_js_calls.py",
        lines=2,
    ),
    Mutation(
        "stalls: the time of day is set, and the worker's waits go on",
        "return lambda: time.time() * 1000",
        "tests/behaviour/test_relay_time_jumps.py -k time_of_day",
    ),
    Mutation(
        "dials that are given up",
        "self._controller.abort(reason)",
        "tests/browser/test_values.py",
    ),
    Mutation(
        "calls that JavaScript carries out: a change takes back all grants",
        "self._cached_listing = None",
        "tests/worker/test_js_calls.py",
        lines=2,
    ),
    Mutation(
        "calls that JavaScript carries out: an audience takes back all grants",
        "self._presence.watch(tab)",
        "tests/worker/test_js_calls.py",
        lines=2,
    ),
    Mutation(
        "calls that JavaScript carries out: their number",
        "if (!call) return false;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: their channel",
        "const pattern = call && true ? patternOf(call) : undefined;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: whose answer it is",
        "if (!known) return false;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: what was acknowledged",
        "if (!this.#canWrite()) return false;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: how far behind",
        "if (this.#requestCount + this.#answers.length >= MAX_UNRECORDED) this.sync();",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls of JavaScript: reported before a frame",
        "this.#granted = undefined;",
        "tests/js/test_granted_calls.py",
        lines=2,
    ),
    Mutation(
        "a busy tab: calls that JavaScript carries out wait too",
        "return this.#send(grant, grant.port, call);",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: a tab by name",
        'if (!isRecord(given) || request.includes("\\n") || hasManyBrackets(json)) return undefined;',
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: nothing else is said",
        'if (typeof name !== "string" || !isRecord(given) || !isRecord(meta)) return undefined;',
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: another caller", 'const caller = "";', "tests/js/test_granted_calls.py"
    ),
    Mutation(
        "calls that JavaScript carries out: text before it",
        "if (end <= before.length || !request.endsWith(after)) return undefined;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: text behind it",
        "if (end <= before.length || !request.startsWith(before)) return undefined;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: arguments that are JSON",
        'if (Object.hasOwn(given, TAB_ARGUMENT) || request.includes("\\n") || hasManyBrackets(json)) return undefined;',
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls that JavaScript carries out: a repeated key",
        "if (false) return undefined;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "calls of JavaScript: reported before a page's message",
        'if (data.t === "attach" || data.t === "token") return receive(JSON.stringify(withoutKey(data)));',
        "tests/js/test_granted_calls.py",
        lines=2,
    ),
    Mutation(
        "calls of JavaScript: reported before the end of a socket",
        "closed(event.code, event.reason);",
        "tests/js/test_granted_calls.py",
        lines=2,
    ),
    Mutation(
        "another program on the port: the worker's key is derived",
        "const key = pageKey?.id === token ? pageKey : (await keysFrom(await keyOf(token))).page;",
        "tests/js/test_proof.py::test_the_relay_takes_the_proofs_of_pages_and_workers_for_what_each_may_do",
    ),
    Mutation(
        "another program on the port: a worker's socket is signed",
        "",
        "tests/js/test_proof.py::test_a_socket_is_open_when_the_relay_has_signed_it_and_sends_nothing_before",
    ),
    Mutation(
        "calls of JavaScript: reported before a timer",
        "function()",
        "tests/worker/test_js_calls.py",
        lines=2,
    ),
    Mutation(
        "a tool that changed while the user was asked",
        "if destination is None:",
        "tests/tabs/test_approvals.py::test_a_tool_that_is_another_one_by_the_time_it_is_allowed_does_not_run",
    ),
    Mutation(
        "a tool that changed while a call waited for its page",
        "self._send(call, routed, destination, is_new=False)",
        "tests/tabs/test_approvals.py::test_a_call_that_waited_for_its_page_asks_if_it_would_have_to_by_now",
    ),
    Mutation(
        "a question about what a page offered before it was left",
        "if asked is None or self._must_wait(destination, is_new=True):",
        "tests/tabs/test_approvals.py::test_the_user_is_asked_about_what_a_page_offers_and_not_about_what_it_offered_before_it_was_left",
    ),
    Mutation(
        "a call that goes on with another tool",
        "if asked is None or allowed is not None:",
        "tests/tabs/test_approvals.py::test_a_call_that_goes_on_and_waited_for_its_page_does_so_with_the_tool_that_was_allowed",
    ),
    Mutation(
        "a busy tab: a call that another tab could take waits until its tab reads",
        "return False",
        "tests/tabs/test_tab_responsiveness.py",
    ),
    Mutation(
        "calls of JavaScript: reported before a change",
        "self._grants = []",
        "tests/worker/test_js_calls.py",
        lines=2,
    ),
    Mutation("calls that JavaScript carries out: a channel that is open", "if False:", "tests/worker/test_js_calls.py"),
    Mutation(
        "calls that JavaScript carries out: a channel that is open, answered",
        "is_sound = is_sound",
        "tests/worker/test_js_calls.py",
    ),
    Mutation(
        "another program on the port: the worker checks the relay's signature",
        "if (!isFormed) {",
        "tests/js/test_proof.py::test_another_program_is_distinguished_from_the_relay",
    ),
    Mutation(
        "another program on the port: a page's keys can't be exported",
        'return crypto.subtle.importKey("raw", raw, HMAC, true, ["sign"]);',
        "tests/e2e/test_squatting.py::test_a_token_of_an_earlier_version_is_replaced_by_keys",
    ),
    Mutation(
        "another program on the port: a page loads no code from it",
        None,
        "tests/e2e/test_squatting.py::test_a_bundled_client_loads_no_code_from_another_program_and_comes_back_to_the_relay",
    ),
    Mutation(
        "a page that is loaded while the relay is down: a worker that failed is started again",
        "return void this.#startup.afterFailure();",
        "tests/e2e/test_boot.py::test_a_worker_that_failed_to_start_is_started_again_by_itself",
    ),
    Mutation(
        "params of any type: the envelope of a request in the worker",
        "if False:",
        "tests/mcp/test_server_odd_messages.py",
    ),
    Mutation(
        "a lasting approval is for one session",
        'return self.caller.principal, "", owner, self.name, fingerprint_of(self.item)',
        "tests/tabs/test_approvals.py",
    ),
    Mutation(
        "approval buttons that work at once",
        'button.addEventListener("click", (event) => event.isTrusted && run());',
        "tests/e2e/test_approval.py::test_a_cancelled_call_takes_its_question_away_and_a_page_may_ask_in_its_own_way",
    ),
    Mutation("a destructive tool asks", "return False", "tests/tabs/test_approvals.py"),
    Mutation("only the tab that was asked answers", "if question is None:", "tests/tabs/test_approvals.py"),
    Mutation("what a session's permission is for", "return owner, self.name", "tests/tabs/test_approvals.py"),
    Mutation(
        "a tool that is another one now asks again",
        'return self.caller.principal, self.caller.session or "", owner, self.name',
        "tests/tabs/test_approvals.py",
    ),
    Mutation("questions that are open", "elif False:", "tests/tabs/test_approvals.py"),
    Mutation(
        "a question without an answer",
        "if False:\n    self.drop(call)\n    tab, name, wait_s = question.tab, question.asked.name, self._timing.approve_s",
        "tests/tabs/test_approvals.py",
        lines=3,
    ),
    Mutation("a question that was answered", None, "tests/tabs/test_approvals.py::test_a_question_is_answered_once"),
    Mutation(
        "a state that comes back twice",
        "if False:",
        "tests/tabs/test_requests.py::test_what_was_allowed_once_goes_on_once",
    ),
    Mutation(
        "states that others push out",
        "if number in self._until:",
        "tests/mcp/test_parked_calls.py::test_a_used_state_stays_used_however_many_are_used_and_the_table_stays_small",
    ),
    Mutation(
        "a state of a worker before",
        'call.begin(answers, held["s"], goes_on=True)',
        "tests/tabs/test_requests.py::test_what_was_allowed_in_a_worker_before_is_asked_about_again",
    ),
    Mutation(
        "the length of a tab's id in the worker",
        "if False:",
        "tests/tabs/test_presence.py::test_a_tab_with_a_long_id_is_refused_with_the_reason",
    ),
    Mutation(
        "bounds: what a page offers",
        "if item[KINDS[kind]] not in tab.offers[kind] and False:",
        "tests/tabs/test_presence.py::test_a_page_offers_a_bounded_number_of_a_kind_and_may_offer_those_again",
    ),
    Mutation(
        "load again until the relay answers",
        "for (let attempt = 0; attempt < 1; attempt++) {",
        "tests/e2e/test_loading.py -k README",
    ),
    Mutation(
        "keep tabs that connect before the relay's code is loaded",
        'if ("onconnect" in scope) scope.onconnect = (/** @type {Event} */ event) => event;',
        "tests/e2e/test_loading.py -k README",
    ),
    Mutation("a busy tab: one ping at a time", "if True:", "tests/tabs/test_tab_responsiveness.py"),
    Mutation(
        "a busy tab: a tab has a window of unread calls",
        "return 0 <= now_ms - self.received_ms <= FRESH_MS",
        "tests/tabs/test_tab_responsiveness.py",
    ),
    Mutation(
        "a busy tab: a tab that was silent gets no call",
        "return len(self.unread) - self.pings < self.window",
        "tests/tabs/test_tab_responsiveness.py",
    ),
    Mutation(
        "a busy tab: the window has a limit", "self.window = self.window + 1", "tests/tabs/test_tab_responsiveness.py"
    ),
    Mutation("a busy tab: the window is one call after a pause", "pass", "tests/tabs/test_tab_responsiveness.py"),
    Mutation(
        "a busy tab: an answer shows what came before it, and no more",
        "while self.unread:",
        "tests/tabs/test_tab_responsiveness.py",
    ),
    Mutation(
        "a busy tab: calls that wait come first",
        "return tab.read_state.has_room(self._now_ms())",
        "tests/tabs/test_tab_responsiveness.py",
    ),
    Mutation("a busy tab: Python learns what JavaScript received", "pass", "tests/worker/test_js_calls.py"),
    Mutation(
        "a busy tab: JavaScript sends no more than the window",
        "return pings === 0 && performance.now() - received_ms <= FRESH_MS;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "a busy tab: JavaScript sends nothing to a tab that was silent",
        "return pings === 0 && unread.size < window;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "a busy tab: JavaScript sends nothing past calls that wait",
        "return unread.size < window && performance.now() - received_ms <= FRESH_MS;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation(
        "a busy tab: the window of JavaScript has a limit",
        "if (signs.unread.size - signs.pings >= signs.window) signs.window++;",
        "tests/js/test_granted_calls.py",
    ),
    Mutation("a busy tab: the window of JavaScript is one call after a pause", None, "tests/js/test_granted_calls.py"),
    Mutation("bounds: tools whose missing description is shown", "if True:", "tests/worker/test_page_console.py"),
)
