"""Skills: their entries, their files, and the lists that clients get of them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.skills import MAX_FILES, MAX_SIZE, skill
from tabserver.handlers.toolbox import Toolbox
from tabserver.schema.shapes import SchemaError
from tabserver.tabs.offers import check_resource
from tabserver.wire.control_messages import RELAY
from tabserver.wire.extensions import META_SKILL
from tests.support.server_harness import MODERN, READY, CoreHarness

FILES: dict[str, str | bytes] = {
    "references/FORMS.md": "# Forms é\n",
    "references/more/a b.md": "x",
    "logo.png": b"\x89PNG\xff",
}


class Offered:
    """A server with one skill."""

    def __init__(self) -> None:
        self.box = Toolbox()

        @skill(files=FILES, metadata={"license": "MIT"}, toolbox=self.box)
        def pdf_tools() -> str:
            """Fill PDF forms."""
            return "# PDF\n"

        self.core = CoreHarness(self.box)
        self._calls = 0

    async def ask(self, method: str, **params: Any) -> Any:
        self._calls += 1
        return await self.core.ask(f"c{self._calls}", method, params)

    def refused(self, method: str, **params: Any) -> Any:
        self._calls += 1
        error = self.core.modern(method, params, channel=f"c{self._calls}")["error"]
        return error["code"], error["data"]["uri"]


async def test_a_skill_is_listed_with_its_frontmatter_and_the_digests_of_its_files() -> None:
    offered = Offered()
    [entry] = (await offered.ask("skills/list"))["skills"]
    assert entry["uri"] == "skill://pdf-tools/SKILL.md"
    assert entry["frontmatter"] == {"name": "pdf-tools", "description": "Fill PDF forms.", "license": "MIT"}
    assert [file["uri"] for file in entry["resources"]] == [
        "skill://pdf-tools/SKILL.md",
        "skill://pdf-tools/references/FORMS.md",
        "skill://pdf-tools/references/more/a%20b.md",
        "skill://pdf-tools/logo.png",
    ]
    for file in entry["resources"]:
        [content] = (await offered.ask("resources/read", uri=file["uri"]))["contents"]
        body = content["text"].encode() if "text" in content else base64.b64decode(content["blob"])
        assert (len(body), f"sha256:{hashlib.sha256(body).hexdigest()}") == (file["size"], file["digest"])
    got = await offered.ask("skills/get", uri=entry["uri"])
    assert got["skill"] == entry and got["ttlMs"] == 0 and "nextCursor" not in got
    assert offered.refused("skills/get", uri="skill://other/SKILL.md") == (-32602, "skill://other/SKILL.md")


async def test_directories_list_their_files_and_the_directories_in_them() -> None:
    offered = Offered()
    children = (await offered.ask("resources/directory/read", uri="skill://pdf-tools"))["resources"]
    assert [(child["name"], child.get("mimeType")) for child in children] == [
        ("pdf-tools", "text/markdown"),
        ("logo.png", None),
        ("references", "inode/directory"),
    ]
    children = (await offered.ask("resources/directory/read", uri="skill://pdf-tools/references"))["resources"]
    assert [child["uri"].rpartition("/")[2] for child in children] == ["FORMS.md", "more"]
    for uri in ("skill://pdf-tools/SKILL.md", "skill://pdf", "skill://pdf-tools/none", "skill:/", "notes://x"):
        assert offered.refused("resources/directory/read", uri=uri) == (-32602, uri)


def test_both_eras_have_the_methods_and_only_the_relay_gets_entries_in_the_list_of_resources() -> None:
    core = Offered().core
    core.open(READY, "s")
    assert len(core.request("skills/list", channel="s")["result"]["skills"]) == 1
    listed = core.request("resources/list", channel="s", id=2)["result"]["resources"]
    assert [(one["name"], "_meta" in one) for one in listed] == [("pdf-tools", False)]
    core.open(replace(READY, principal=RELAY), "r")
    [kept] = core.request("resources/list", channel="r")["result"]["resources"]
    assert kept["_meta"][META_SKILL]["frontmatter"]["name"] == "pdf-tools"
    [shown] = core.modern("resources/list", caller=MODERN, channel="m")["result"]["resources"]
    assert "_meta" not in shown


def test_a_skill_with_a_frontmatter_of_its_own_is_used_as_it_is() -> None:
    box = Toolbox()
    text = "---\nname: refunds\ndescription: >-\n  How to\n  refund.\n---\nText"
    skill(toolbox=box)(lambda: {"SKILL.md": text})
    [listed] = box.resources()
    assert listed["uri"] == "skill://refunds/SKILL.md" and listed["description"] == "How to refund."
    assert listed["_meta"][META_SKILL]["resources"][0]["size"] == len(text)


@pytest.mark.parametrize(
    ("options", "files", "problem"),
    [
        ({"name": "PDF"}, {}, "has 1 to 64 characters"),
        ({"name": "a--b"}, {}, "has 1 to 64 characters"),
        ({"description": "x" * 1025}, {}, "1 to 1,024 characters"),
        ({}, {"SKILL.md": b"x"}, "as text"),
        ({}, {"../secret": "x"}, "no path of a file"),
        ({}, {"/etc": "x"}, "no path of a file"),
        ({}, {"a//b": "x"}, "no path of a file"),
        ({}, {"..\\secret": "x"}, "no path of a file"),
        ({}, {"a": None}, "must be a text or bytes, not NoneType"),
        ({}, {"a": "\ud800"}, "half of a surrogate pair"),
        ({}, {f"f{n}": "" for n in range(MAX_FILES)}, "at most 512 files"),
        ({}, {"large": b"x" * MAX_SIZE}, "at most 512 files, and 16 MiB"),
        ({"name": "one"}, {"SKILL.md": "---\nname: two\ndescription: d\n---\n"}, "has the name 'two'"),
        ({}, {"SKILL.md": "---\nname: &a b\n---\n"}, "not understood"),
    ],
)
def test_what_clients_refuse_is_an_error(options: dict[str, Any], files: dict[str, Any], problem: str) -> None:
    def own() -> dict[str, str | bytes]:
        return {"SKILL.md": "text"} | files

    about = {"name": "own", "description": "d"} | options
    with pytest.raises(SchemaError, match=problem):
        skill(**about, toolbox=Toolbox())(own)


DIGEST = f"sha256:{'0' * 64}"
URI = "skill://own/SKILL.md"
ENTRY = {"text": "name: own\ndescription: d", "resources": [{"uri": URI, "digest": DIGEST, "size": 1}]}


def test_a_page_sends_the_text_of_the_frontmatter() -> None:
    checked = check_resource({"uri": URI, "_meta": {META_SKILL: ENTRY, "mine/x": 1}})
    front = {"name": "own", "description": "d"}
    assert checked["_meta"] == {META_SKILL: {"frontmatter": front, "resources": ENTRY["resources"]}, "mine/x": 1}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {"text": "name: own\ndescription: d"},
        ENTRY | {"text": 5},
        ENTRY | {"text": "name: other\ndescription: d"},
        ENTRY | {"resources": []},
        ENTRY | {"resources": [{"uri": URI, "digest": DIGEST, "size": 1}] * 2},
        ENTRY | {"resources": [{"uri": URI, "digest": "md5:1", "size": 1}]},
        ENTRY | {"resources": [{"uri": URI, "digest": DIGEST, "size": True}]},
        ENTRY | {"resources": [*ENTRY["resources"], {"uri": "skill://other/x", "digest": DIGEST, "size": 1}]},
    ],
)
def test_an_entry_of_another_form_is_refused(entry: Any) -> None:
    with pytest.raises(ValueError):
        check_resource({"uri": URI, "_meta": {META_SKILL: entry}})
