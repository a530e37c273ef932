"""The table of browsers: a run replaces its own rows and keeps the others."""

from pathlib import Path

import pytest

from tests.support.browser_table import BEGIN, END, Verdicts


def item(request: pytest.FixtureRequest) -> pytest.Item:
    node = request.node
    assert isinstance(node, pytest.Item)
    return node


@pytest.mark.shows("reload")
def test_a_run_replaces_its_own_rows_and_no_others(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    old = (
        "| browser | worker | two tabs | reload | last run |\n| --- | --- | --- | --- | --- |\n"
        "| Firefox 1 | shared worker | yes | yes | 2020-01-01 |\n"
        "| WebKitGTK 1 | shared worker | yes | yes | 2020-01-01 |\n"
    )
    page = tmp_path / "browsers.md"
    page.write_text(f"before\n{BEGIN}\n{old}{END}\nafter\n")
    verdicts = Verdicts()
    verdicts.versions["firefox"] = "2"
    # One of several that show the same has failed.
    for has_passed in (True, False, True):
        verdicts.add("firefox", "shared", item(request), has_passed)
    verdicts.write(page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "Firefox 1" not in text
    [firefox] = [line for line in text.splitlines() if line.startswith("| Firefox 2 | shared worker |")]
    assert "**no**" in firefox and "yes" not in firefox
    [webkit] = [line for line in text.splitlines() if line.startswith("| WebKitGTK 1 |")]
    assert webkit.endswith("| yes | 2020-01-01 |")
