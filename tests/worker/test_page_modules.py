"""Page modules: loading, helpers beside them, reloads, and errors that change nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tabserver.handlers.context import Outcome
from tabserver.handlers.toolbox import Toolbox
from tabserver.worker.module_files import MOST_FILES
from tabserver.worker.module_host import POLLS_UNTIL_REMOVED, ModuleHost
from tabserver.worker.module_runtime import ModuleRuntime
from tabserver.worker.page_modules import MOST_MODULES, POLLS_UNTIL_GONE, ModuleOutcome, PageModules
from tests.support.fake_request import RecordingRequest
from tests.support.page_files import HERE, FakePackages, Server, use_toolbox

TOOLS = f"{HERE}tools_of_page.py"


def said(outcome: Outcome) -> object:
    assert isinstance(outcome, dict)
    return outcome["content"][0]["text"]


@dataclass
class ModulesHarness:
    server: Server
    toolbox: Toolbox
    packages: FakePackages
    modules: PageModules
    runtime: ModuleRuntime
    changes: list[list[str]]

    def write(self, **files: str) -> None:
        """Files by name; a tool is declared in the harness's own toolbox."""
        for name, text in files.items():
            path = name.replace("__", "/") if name.startswith("lib__") else name
            self.server.files[f"{path}.py"] = f"from tests.support.page_files import offer\n{text}"

    async def load(self, url: str = TOOLS) -> ModuleOutcome:
        return await self.modules.load(url)

    async def poll(self, *urls: str) -> list[ModuleOutcome]:
        return await self.modules.poll(urls or (TOOLS,))

    @property
    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.toolbox.tools()]

    def call(self, name: str) -> object:
        outcomes: list[Outcome] = []
        self.toolbox.call(name, {}, RecordingRequest(), outcomes.append)
        return said(outcomes[0])


@pytest.fixture
def bench() -> Iterator[ModulesHarness]:
    toolbox = Toolbox()
    use_toolbox(toolbox)
    changes: list[list[str]] = []
    server, packages, runtime = Server(), FakePackages(), ModuleRuntime(toolbox)
    made = ModulesHarness(server, toolbox, packages, PageModules(server.fetch, runtime, packages), runtime, changes)
    toolbox.listen(lambda: changes.append(made.tools), lambda uri: None)
    before = set(sys.modules)
    yield made
    runtime.close()
    for name in packages.loaded:
        del sys.modules[name]
    assert {name for name in set(sys.modules) - before if "page" in name or "helper" in name} == set()


ONE = "@offer\ndef one() -> str: return 'first'\n"
TWO = "@offer\ndef two() -> str: return 'first'\n"


async def test_a_changed_file_is_in_force_when_a_page_names_it_again(bench: ModulesHarness) -> None:
    bench.write(tools_of_page=ONE)
    first = await bench.load()
    assert first.problem is None and first.is_news and not first.is_again and bench.call("one") == "first"
    assert not (await bench.load()).is_news
    bench.write(tools_of_page=ONE.replace("first", "second") + TWO)
    again = await bench.load()
    assert again.is_news and again.is_again and (bench.tools, bench.call("one")) == (["one", "two"], "second")
    bench.write(tools_of_page=TWO)
    await bench.load()
    assert bench.tools == ["two"]


async def test_an_unchanged_file_does_not_run_again(bench: ModulesHarness) -> None:
    bench.write(tools_of_page="import sys\nsys.runs_of_page = getattr(sys, 'runs_of_page', 0) + 1\n" + ONE)
    for _ in range(3):
        await bench.load()
        assert await bench.poll() == []
    assert sys.runs_of_page == 1  # type: ignore[attr-defined]
    del sys.runs_of_page  # type: ignore[attr-defined]


async def test_a_reload_changes_the_order_of_no_list(bench: ModulesHarness) -> None:
    bench.write(tools_of_page=ONE + TWO, helper_page=TWO.replace("two", "three"))
    await bench.load()
    await bench.load(f"{HERE}helper_page.py")
    bench.write(tools_of_page="# changed\n" + TWO + ONE)
    await bench.load()
    assert bench.tools == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("def broken(:\n", "SyntaxError: invalid syntax", 2),
        ("def fine(): pass\nreturn 5\n", "SyntaxError: 'return' outside function", 3),
        ("x = 1\n\nx + missing_name\n", "NameError: name 'missing_name' is not defined", 4),
        ("def deep():\n    raise ValueError('odd')\n\ndeep()\n", "ValueError: odd", 3),
        ("raise SystemExit('over')\n", "SystemExit: over", 2),
        ("raise KeyboardInterrupt('over')\n", "KeyboardInterrupt: over", 2),
    ],
)
async def test_an_error_keeps_the_old_tools_and_names_its_line(
    bench: ModulesHarness, text: str, message: str, line: int
) -> None:
    bench.write(tools_of_page=ONE)
    await bench.load()
    bench.write(tools_of_page=TWO + text)
    [failed] = await bench.poll()
    assert failed.problem is not None and failed.is_running
    assert (failed.problem.url, failed.problem.message, failed.problem.line) == (TOOLS, message, line + 2)
    assert str(failed.problem) == f"{message} (tools_of_page.py, line {line + 2})"
    assert (bench.tools, bench.call("one")) == (["one"], "first")
    # It is reported once, and to a page that comes later.
    assert await bench.poll() == []
    assert str((await bench.load()).problem) == str(failed.problem)
    bench.write(tools_of_page=ONE)
    [mended] = await bench.poll()
    assert mended.problem is None and bench.tools == ["one"]


async def test_code_that_fails_runs_once(bench: ModulesHarness) -> None:
    bench.write(tools_of_page="import sys\nsys.runs_of_page = getattr(sys, 'runs_of_page', 0) + 1\nraise ValueError\n")
    await bench.load()
    for _ in range(3):
        assert await bench.poll() == []
    assert sys.runs_of_page == 1  # type: ignore[attr-defined]
    del sys.runs_of_page  # type: ignore[attr-defined]


async def test_helpers_beside_a_module_are_imported_and_their_changes_count(bench: ModulesHarness) -> None:
    bench.write(
        tools_of_page="from helper_page import word\nimport lib.inner\n"
        "@offer\ndef one() -> str: return word() + lib.inner.WORD\n",
        helper_page="from helper_page_2 import END\ndef word() -> str: return 'a' + END\n",
        helper_page_2="END = '1'\n",
        lib__inner="from . import near\nfrom .near import NEAR\nWORD = NEAR + near.NEAR\n",
        lib__near="NEAR = 'n'\n",
        lib____init__="",
    )
    bench.server.files["lib/__init__.py"] = ""
    assert (await bench.load()).problem is None
    assert bench.call("one") == "a1nn"
    bench.write(helper_page_2="END = '2'\n")
    [outcome] = await bench.poll()
    assert outcome.url == TOOLS and bench.call("one") == "a2nn"
    bench.write(lib__near="NEAR = 'm'\n")
    await bench.poll()
    assert bench.call("one") == "a2mm"


async def test_an_error_in_a_helper_is_shown_with_the_helper_and_its_line(bench: ModulesHarness) -> None:
    bench.write(tools_of_page="import helper_page\n" + ONE, helper_page="WORD = 1\n")
    await bench.load()
    bench.write(helper_page="WORD = 1\nWORD.missing\n")
    [failed] = await bench.poll()
    assert failed.problem is not None
    assert (failed.problem.url, failed.problem.line) == (f"{HERE}helper_page.py", 3)
    assert "helper_page.py" in failed.traceback and "WORD.missing" in failed.traceback
    assert sys.modules["helper_page"].WORD == 1 and bench.call("one") == "first"


async def test_all_modules_that_share_a_helper_are_loaded_again_or_none(bench: ModulesHarness) -> None:
    other = f"{HERE}page_other.py"
    bench.write(
        tools_of_page="import helper_page\n@offer\ndef one() -> str: return helper_page.WORD\n",
        page_other="import helper_page\nWORD = helper_page.WORD.upper()\n@offer\ndef two() -> str: return WORD\n",
        helper_page="WORD = 'a'\n",
    )
    await bench.load()
    await bench.load(other)
    bench.write(helper_page="WORD = 'b'\n")
    await bench.poll(TOOLS, other)
    assert (bench.call("one"), bench.call("two")) == ("b", "B")
    bench.write(helper_page="WORD = 5\n")
    for failed in await bench.poll(TOOLS, other):
        assert failed.problem is not None and (failed.problem.url, failed.problem.line) == (other, 3)
    assert (bench.call("one"), bench.call("two")) == ("b", "B")


async def test_a_running_call_ends_with_the_code_it_began_with(bench: ModulesHarness) -> None:
    bench.write(
        tools_of_page="import asyncio\nWORD = 'old'\ngo = asyncio.Event()\n"
        "def word() -> str: return WORD\n"
        "@offer\nasync def one() -> str:\n    await go.wait()\n    return word()\n"
    )
    await bench.load()
    outcomes: list[Outcome] = []
    ended = asyncio.Event()

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        ended.set()

    bench.toolbox.call("one", {}, RecordingRequest(), done)
    go = sys.modules["tools_of_page"].go
    bench.write(tools_of_page=ONE)
    await bench.poll()
    assert bench.call("one") == "first"
    go.set()
    await ended.wait()
    assert said(outcomes[0]) == "old"


async def test_a_tool_may_move_to_another_file(bench: ModulesHarness) -> None:
    bench.write(tools_of_page="import helper_page\n" + TWO, helper_page=ONE)
    await bench.load()
    bench.write(tools_of_page="import helper_page\n" + TWO + ONE.replace("first", "moved"), helper_page="")
    assert (await bench.poll())[0].problem is None
    assert sorted(bench.tools) == ["one", "two"] and bench.call("one") == "moved"


async def test_what_a_module_offers_later_goes_with_it(bench: ModulesHarness) -> None:
    bench.write(tools_of_page=ONE + "def later() -> str: return ''\ndef add(): offer(later)\n")
    await bench.load()
    sys.modules["tools_of_page"].add()
    assert bench.tools == ["one", "later"]
    bench.write(tools_of_page=ONE)
    await bench.poll()
    assert bench.tools == ["one"]


async def test_modules_that_no_page_names_are_removed_with_their_helpers(bench: ModulesHarness) -> None:
    bench.write(tools_of_page="import helper_page\n" + ONE, helper_page=TWO)
    await bench.load()
    await bench.modules.keep([TOOLS])
    assert sorted(bench.tools) == ["one", "two"]
    await bench.modules.keep([])
    assert bench.tools == [] and "helper_page" not in sys.modules


@pytest.mark.parametrize("pages", [False, True])
async def test_a_missing_file_is_reported_with_the_reason(bench: ModulesHarness, pages: bool) -> None:
    bench.server.pages = pages
    failed = await bench.load()
    assert failed.problem is not None and not failed.is_running
    wanted = "is there such a file?" if pages else "the server answers 404"
    assert wanted in failed.problem.message


@pytest.mark.parametrize("pages", [False, True])
async def test_a_file_that_is_removed_is_reported_once_and_not_while_an_editor_saves_it(
    bench: ModulesHarness, pages: bool
) -> None:
    bench.server.pages = pages
    bench.write(tools_of_page=ONE)
    await bench.load()
    for _ in range(2):  # after it is back, the count begins again
        source = bench.server.files.pop("tools_of_page.py")
        for _ in range(POLLS_UNTIL_GONE - 1):
            assert await bench.poll() == []
        bench.server.files["tools_of_page.py"] = source
        assert await bench.poll() == []
    del bench.server.files["tools_of_page.py"]
    news = [outcome for _ in range(3 * POLLS_UNTIL_GONE) for outcome in await bench.poll()]
    assert [outcome.is_running and outcome.problem is not None for outcome in news] == [True]
    assert bench.call("one") == "first"
    bench.write(tools_of_page=ONE)
    [back] = await bench.poll()
    assert back.problem is None


async def test_a_server_that_is_away_changes_nothing(bench: ModulesHarness) -> None:
    bench.write(tools_of_page=ONE)
    await bench.load()
    bench.server.is_down = True
    assert await bench.poll() == []
    failed = await bench.load()
    assert failed.problem is not None and failed.is_running and "connection refused" in str(failed.problem)
    assert bench.call("one") == "first"
    bench.server.is_down = False
    [back] = await bench.poll()
    assert back.problem is None


async def test_a_helper_that_is_written_after_its_import_is_found(bench: ModulesHarness) -> None:
    bench.write(tools_of_page="import helper_page\n" + ONE)
    failed = await bench.load()
    assert failed.problem is not None and failed.problem.line == 2
    assert failed.problem.message.endswith("Run: tabrelay packages add helper_page")
    bench.write(helper_page="")
    [outcome] = await bench.poll()
    assert outcome.problem is None and bench.tools == ["one"]


async def test_an_optional_import_is_not_looked_for_in_each_poll(bench: ModulesHarness) -> None:
    bench.write(tools_of_page="try:\n    import helper_page\nexcept ImportError:\n    pass\n" + ONE)
    assert (await bench.load()).problem is None
    bench.server.asked.clear()
    await bench.poll()
    assert bench.server.asked == ["tools_of_page.py"]


async def test_a_package_that_only_a_call_imports_is_found_when_the_page_is_loaded_again(bench: ModulesHarness) -> None:
    imports = "@offer\ndef one() -> str:\n    import packaged_page\n    return packaged_page.WORD\n"
    bench.write(tools_of_page=imports)
    assert (await bench.load()).problem is None
    assert "No module named 'packaged_page'" in str(bench.call("one"))
    bench.packages.available["packaged_page"] = "WORD = 'packed'"
    assert (await bench.load()).problem is None
    assert bench.call("one") == "packed"


async def test_packages_are_loaded_before_the_module_runs(bench: ModulesHarness) -> None:
    bench.packages.available["packaged_page"] = "WORD = 'packed'"
    bench.write(tools_of_page="import packaged_page\n@offer\ndef one() -> str: return packaged_page.WORD\n")
    assert (await bench.load()).problem is None
    assert bench.call("one") == "packed" and bench.packages.loaded == ["packaged_page"]
    assert "packaged_page.py" not in bench.server.asked


async def test_the_library_and_types_only_imports_are_not_fetched(bench: ModulesHarness) -> None:
    bench.write(
        tools_of_page="import json, asyncio\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    import helper_page\n" + ONE
    )
    assert (await bench.load()).problem is None
    assert bench.server.asked == ["tools_of_page.py"]


async def test_a_file_with_the_name_of_a_library_module_is_that_file(bench: ModulesHarness) -> None:
    bench.write(json=ONE + "import json\nassert json.dumps\n")
    assert (await bench.load(f"{HERE}json.py")).problem is None
    assert bench.call("one") == "first"


async def test_two_files_of_one_name_in_two_folders_are_two_modules(bench: ModulesHarness) -> None:
    bench.server.files["tools_of_page.py"] = "from tests.support.page_files import offer\n" + ONE
    bench.server.files["sub/tools_of_page.py"] = "from tests.support.page_files import offer\n" + TWO
    assert (await bench.load()).problem is None
    assert (await bench.load(f"{HERE}sub/tools_of_page.py")).problem is None
    assert bench.tools == ["one", "two"]
    bench.server.files["helper_page.py"] = bench.server.files["sub/helper_page.py"] = ""
    bench.write(tools_of_page="import helper_page\n" + ONE)
    assert (await bench.load()).problem is None
    bench.server.files["sub/tools_of_page.py"] = "import helper_page\n"
    failed = await bench.load(f"{HERE}sub/tools_of_page.py")
    assert failed.problem is not None and "give one of the two another name" in failed.problem.message
    assert bench.tools == ["one", "two"]


async def test_the_numbers_of_modules_and_helpers_are_bounded(bench: ModulesHarness) -> None:
    bench.server.files |= {f"helper_page_{number}.py": "" for number in range(MOST_FILES + 1)}
    bench.write(tools_of_page="".join(f"import helper_page_{number}\n" for number in range(MOST_FILES + 1)))
    failed = await bench.load()
    assert failed.problem is not None and "more than 256 files" in failed.problem.message
    for number in range(MOST_MODULES):
        await bench.load(f"{HERE}gone{number}.py")
    refused = await bench.load(f"{HERE}another.py")
    assert refused.problem is not None and refused.problem.message.startswith("At most 256")


async def test_a_file_of_a_page_that_leaves_after_its_successor_has_come_is_removed(bench: ModulesHarness) -> None:
    bench.write(
        tools_of_page="@offer\ndef old() -> str:\n    return ''", other="@offer\ndef new() -> str:\n    return ''"
    )
    host = ModuleHost(
        bench.modules,
        broadcast=lambda message: None,
        is_visible=lambda: True,
        now_s=lambda: 0.0,
        report=lambda error, while_doing: pytest.fail(str(error)),
    )
    await host.attach("first", [TOOLS], lambda message: None, is_dev=True)
    await host.attach("second", [f"{HERE}other.py"], lambda message: None, is_dev=True)
    assert sorted(bench.tools) == ["new", "old"]
    host.detach("first")
    for _ in range(POLLS_UNTIL_REMOVED - 1):
        await host._poll()
    assert sorted(bench.tools) == ["new", "old"]
    await host._poll()
    assert bench.tools == ["new"]
    host.detach("second")
