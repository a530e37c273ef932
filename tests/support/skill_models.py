"""Checks of results about skills (SEP-2640), by the types that the extension's specification defines.

The official package has none of them. Unknown members are errors: what a server adds by mistake must not pass.
"""

from __future__ import annotations

from typing import Any, Literal

from mcp_types import methods
from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SkillResource(_Strict):
    uri: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)


class Frontmatter(BaseModel):
    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    description: str = Field(min_length=1, max_length=1024)


class SkillEntry(_Strict):
    uri: str = Field(pattern=r"/SKILL\.md$")
    frontmatter: Frontmatter
    resources: list[SkillResource] | Literal["dynamic"]


class _SkillsResult(_Strict):
    """Members that each result of 2026-07-28 has, and no result of a session."""

    resultType: Literal["complete"] | None = None
    ttlMs: int | None = None
    cacheScope: Literal["public", "private"] | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")


class SkillList(_SkillsResult):
    skills: list[SkillEntry]
    nextCursor: str | None = None


class OneSkill(_SkillsResult):
    skill: SkillEntry


_RESULTS: dict[str, type[_SkillsResult]] = {"skills/list": SkillList, "skills/get": OneSkill}


def check_result(version: str, method: str, result: dict[str, Any]) -> bool:
    """Is it a result about skills? Raises ValueError for one that is wrong."""
    if method == "resources/directory/read":
        methods.parse_server_result("resources/list", version, result)
        return True
    model = _RESULTS.get(method)
    if model is None:
        return False
    read = model.model_validate(result)
    is_modern = version >= "2026"
    if (read.resultType, read.ttlMs is not None, read.cacheScope is not None) != (
        ("complete", True, True) if is_modern else (None, False, False)
    ):
        raise ValueError(f"a result of {version} with the members of another version: {result}")
    return True


def is_request(method: str) -> bool:
    return method in _RESULTS or method == "resources/directory/read"
