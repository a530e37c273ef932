"""Tools, prompts and resources that the official conformance suite requires, written with the public Python API.

Names and texts are the suite's. A worker loads this file as one of a page's modules. Handlers do not depend on the era:
the same ones serve the whole suite.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tabserver import (
    Audio,
    Context,
    Elicit,
    Embedded,
    Image,
    InputRequired,
    ListRoots,
    Question,
    Refusal,
    Sample,
    ToolError,
    default_toolbox,
    prompt,
    resource,
    skill,
    tool,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
# An empty WAV file.
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=")
STEP_S = 0.05


# -- content ----------------------------------------------------------------------------------------------------------


@tool
def test_simple_text() -> Any:
    """Return text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Image:
    """Return a picture."""
    return Image(PNG)


@tool
def test_audio_content() -> Audio:
    """Return a sound."""
    return Audio(WAV)


@tool
def test_embedded_resource() -> Embedded:
    """Return a resource as content."""
    return Embedded("test://embedded-resource", "This is an embedded resource content.", "text/plain")


@tool
def test_multiple_content_types() -> list[str | Image | Embedded]:
    """Return several kinds of content at once."""
    data = Embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return ["Multiple content types test:", Image(PNG), data]


@tool
def test_error_handling() -> None:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


# -- notifications before the answer -----------------------------------------------------------------------------------


@tool
async def test_tool_with_logging(ctx: Context) -> Any:
    """Log three times."""
    ctx.info("Tool execution started")
    await asyncio.sleep(STEP_S)
    ctx.info("Tool processing data")
    await asyncio.sleep(STEP_S)
    ctx.info("Tool execution completed")
    return "Tool with logging executed successfully"


@tool
def test_logging_tool(ctx: Context) -> Any:
    """Log once."""
    ctx.info("This is for those who asked for it")
    return "Logged."


@tool
async def test_tool_with_progress(ctx: Context) -> Any:
    """Report progress three times."""
    for reached in (0, 50, 100):
        ctx.progress(reached, 100, f"Completed step {reached} of 100")
        await asyncio.sleep(STEP_S)
    return "Tool with progress executed successfully"


@tool
async def test_reconnection(ctx: Context) -> Any:
    """Close the connection, and finish later."""
    ctx.close_stream()
    await asyncio.sleep(2 * STEP_S)
    return "Reconnection test completed successfully"


# -- asking the client ------------------------------------------------------------------------------------------------


@tool
async def test_sampling(ctx: Context, prompt: str) -> Any:
    """Ask the client's model."""
    said = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {said.text}"


@dataclass
class Person:
    username: Annotated[str, "User's response"]
    email: Annotated[str, "User's email address"]


@tool
async def test_elicitation(ctx: Context, message: str) -> Any:
    """Ask the user."""
    answer = await ctx.elicit(message, Person)
    return f"User response: action={answer.action}, content={answer.content}"


@dataclass
class Defaults:
    name: Annotated[str, "User name"] = "John Doe"
    age: Annotated[int, "User age"] = 30
    score: Annotated[float, "User score"] = 95.5
    status: Annotated[Literal["active", "inactive", "pending"], "User status"] = "active"
    verified: Annotated[bool, "Verification status"] = True


@tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> Any:
    """Ask the user, with a default for each field."""
    answer = await ctx.elicit("Please review and update the form fields with defaults", Defaults)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [
                {"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"},
                {"const": "value3", "title": "Third Option"},
            ],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": "value1", "title": "First Choice"},
                    {"const": "value2", "title": "Second Choice"},
                    {"const": "value3", "title": "Third Choice"},
                ]
            },
        },
    },
    "required": [],
}


@tool
async def test_elicitation_sep1330_enums(ctx: Context) -> Any:
    """Ask the user to choose, in each of the five forms."""
    answer = await ctx.elicit("Please select options from the enum fields", ENUMS)
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@tool
async def test_streaming_elicitation(ctx: Context) -> Any:
    """Report progress, then ask the user."""
    ctx.progress(1, 2)
    answer = await ctx.elicit("Shall it go on?", Confirmation)
    return f"The user said {answer.action}."


@tool
def test_missing_capability(ctx: Context) -> Any:
    """Require a client that can sample."""
    ctx.require("sampling")
    return "The client can sample."


# -- questions by key: the modern form, which sessions get as requests -------------------------------------------------


@dataclass
class Name:
    name: str


@dataclass
class Color:
    color: str


@dataclass
class Confirmation:
    ok: bool


@dataclass
class Background:
    context: str


@tool
async def test_input_required_result_elicitation(ctx: Context) -> Any:
    """Ask for a name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name}!"


@tool
async def test_input_required_result_sampling(ctx: Context) -> Any:
    """Ask the client's model for a capital."""
    said = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model said: {said.text}"


@tool
async def test_input_required_result_list_roots(ctx: Context) -> Any:
    """Ask for the client's folders."""
    roots = await ctx.roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@tool
def test_input_required_result_request_state(ctx: Context) -> InputRequired | str:
    """Ask, and keep state until the answer arrives."""
    question = Elicit("Please confirm", Confirmation)
    answer = ctx.answer("confirm", question)
    if answer is None or ctx.request_state != "asked":
        return InputRequired({"confirm": question}, state="asked")
    return f"state-ok: {answer.data.ok}"


@tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> Any:
    """Ask for three things at once."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{greeting.text} {name.data.name}, with {len(roots)} roots"


@tool
async def test_input_required_result_multi_round(ctx: Context) -> Any:
    """Ask one thing after the other."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return f"{name.data.name} likes {color.data.color}."


@tool
def test_input_required_result_tampered_state(ctx: Context) -> InputRequired | str:
    """Ask, and accept only an unchanged state."""
    question = Elicit("Please confirm", Confirmation)
    answer = ctx.answer("confirm", question)
    if answer is None:
        return InputRequired({"confirm": question}, state={"step": 1})
    return f"state-ok: {ctx.request_state}"


@tool
def test_input_required_result_capabilities(ctx: Context) -> InputRequired | str:
    """Ask only for what the client supports."""
    possible: dict[str, Question[Any]] = {
        "user_name": Elicit("What is your name?", Name),
        "greeting": Sample("Generate a greeting", max_tokens=50),
        "client_roots": ListRoots(),
    }
    wanted = {key: question for key, question in possible.items() if ctx.can(question)}
    if not wanted or wanted.keys() <= ctx.input_responses.keys():
        return f"Asked for {len(wanted)} things."
    return InputRequired(wanted)


# -- schemas ----------------------------------------------------------------------------------------------------------


@tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(**arguments: Any) -> Any:
    """Take arguments under a schema with keywords of JSON Schema 2020-12."""
    return f"JSON Schema 2020-12 tool called with: {arguments}"


@tool
def test_x_mcp_header(region: Annotated[str, "Where to", {"x-mcp-header": "Region"}]) -> Any:
    """Take an argument that clients also send as a header."""
    return f"Region: {region}"


# -- lists that change -------------------------------------------------------------------------------------------------


def temporary_offer() -> str:
    """A tool or prompt that is offered temporarily."""
    return "Here."


@tool
def test_trigger_tool_change() -> Any:
    """Change the list of tools."""
    if "test_passing_tool" in [item["name"] for item in default_toolbox.tools()]:
        default_toolbox.remove("test_passing_tool")
    else:
        tool(name="test_passing_tool")(temporary_offer)
    return "The list of tools has changed."


@tool
def test_trigger_prompt_change() -> Any:
    """Change the list of prompts."""
    if "test_passing_prompt" in [item["name"] for item in default_toolbox.prompts()]:
        default_toolbox.remove_prompt("test_passing_prompt")
    else:
        prompt(name="test_passing_prompt")(temporary_offer)
    return "The list of prompts has changed."


# -- prompts ----------------------------------------------------------------------------------------------------------


@prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt(complete={"arg1": ["paris", "park", "party"], "arg2": lambda typed: [typed + "!"] if typed else []})
def test_prompt_with_arguments(arg1: Annotated[str, "First"], arg2: Annotated[str, "Second"]) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: Annotated[str, "What to embed"]) -> list[Embedded | str]:
    """A prompt that contains a resource."""
    embedded = Embedded(resourceUri, "Embedded resource content for testing.", "text/plain")
    return [embedded, "Please process the embedded resource above."]


@prompt
def test_prompt_with_image() -> list[Image | str]:
    """A prompt that contains a picture."""
    return [Image(PNG), "Please analyze the image above."]


@prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user."""
    answer = await ctx.elicit("What context should the prompt use?", Background, key="user_context")
    return f"Use this context: {answer.data.context}"


# -- resources --------------------------------------------------------------------------------------------------------


@resource("test://static-text", name="Static Text Resource", mime_type="text/plain")
def static_text() -> str:
    """Constant text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", name="Static Binary Resource", mime_type="image/png")
def static_binary() -> bytes:
    """A constant picture."""
    return PNG


@resource("test://watched-resource", name="Watched Resource", mime_type="text/plain")
def watched() -> str:
    """Text with subscriptions."""
    return "Watched resource content"


@resource("test://template/{id}/data", name="Dynamic Resource", mime_type="application/json")
def template(id: str) -> dict[str, Any]:
    """Data for any id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# -- skills ------------------------------------------------------------------------------------------------------------


@skill(files={"references/FORMS.md": "# Forms\n", "scripts/extract.py": "print('x')\n", "data/logo.bin": b"\x00\xff"})
def pdf_tools() -> str:
    """Extract, fill and assemble PDF files. Use when a task mentions PDF."""
    return "# PDF tools\n\nRead references/FORMS.md before you fill a form.\n"


@skill
def git_workflow() -> str:
    return """---
name: git-workflow
description: >-
  Follow this team's conventions
  for branches and commits.
license: Apache-2.0
metadata:
  version: "2.1"
---
# Git workflow
"""


# -- tasks ------------------------------------------------------------------------------------------------------------


@tool
def greet(name: str) -> Any:
    """Greet at once."""
    return f"Hello, {name}!"


@tool(task=True)
async def slow_compute(ctx: Context, seconds: float, label: str = "") -> Any:
    """Compute for some seconds."""
    ctx.progress(0, seconds, label)
    await asyncio.sleep(seconds)
    return f"Computed {label} for {seconds:g} s"


@tool(task="required")
async def failing_job() -> None:
    """Fail after a second."""
    await asyncio.sleep(1)
    raise ToolError("This job intentionally fails")


@tool(task=True)
async def protocol_error_job() -> None:
    """End with a protocol error after a second."""
    await asyncio.sleep(1)
    raise Refusal(-32603, "This job intentionally ends with a protocol error")


@dataclass
class Agreement:
    confirm: bool


@tool(task=True)
async def confirm_delete(ctx: Context, filename: str) -> Any:
    """Ask before something is deleted."""
    answer = await ctx.elicit(f"Delete {filename}?", Agreement)
    return f"{filename} is deleted." if answer.accepted else f"{filename} is kept."


@dataclass
class NamedAgreement:
    name: str
    confirm: bool


@tool(task=True)
async def multi_input(ctx: Context) -> Any:
    """Ask two questions at once."""
    answers = await asyncio.gather(ctx.elicit("The first?", NamedAgreement), ctx.elicit("The second?", NamedAgreement))
    return f"Answers: {', '.join(answer.data.name for answer in answers)}"


@tool(task="required")
async def test_tool_with_task(ctx: Context) -> Any:
    """Ask for a name before the task begins."""
    question = Elicit("What is your name?", Name)
    answer = ctx.answer("user_name", question)
    if answer is None:
        return InputRequired({"user_name": question})
    await asyncio.sleep(1)
    return f"Hello, {answer.data.name}, from a task!"
