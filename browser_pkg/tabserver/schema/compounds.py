"""Composite shapes: records, unions, named types, and types with a description or bounds.

Each reports errors with their path. The simple shapes are in `shapes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..wire.jsonrpc import kind_of, show
from .bounds import check_bounds
from .shapes import OBJECT, Choice, Json, Reading, Scalar, Schema, Shape, at, suggest
from .unions import union_of, with_keywords, without_null


@dataclass(frozen=True, slots=True)
class Property:
    """`omits_null`: it may be left out, and null means the same. Null is read, and is not in the schema."""

    shape: Shape
    is_required: bool
    default: Json = None
    has_default: bool = False
    omits_null: bool = False

    def schema(self) -> Schema:
        schema = self.shape.schema()
        if self.omits_null:
            return without_null(schema)
        return schema | ({"default": self.default} if self.has_default else {})


@dataclass(slots=True)
class Record:
    """Named properties: a dataclass, a TypedDict, or the arguments of a tool. Names that are not listed are refused."""

    name: str
    make: Callable[[dict[str, Any]], Any]
    noun: str = "property"
    about: str | None = None
    properties: dict[str, Property] = field(default_factory=dict)
    is_recursive: bool = False
    kinds: frozenset[str] = OBJECT

    @property
    def label(self) -> str:
        return "object"

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"} if self.is_recursive else self.expanded()

    def expanded(self) -> Schema:
        schema: Schema = {"type": "object"} | ({"description": self.about} if self.about else {})
        schema["properties"] = {k: p.schema() for k, p in self.properties.items()}
        if required := [name for name, prop in self.properties.items() if prop.is_required]:
            schema["required"] = required
        return schema | {"additionalProperties": False}

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        if not isinstance(value, dict):
            reading.fault(path, f"expected object, got {show(value)}")
            return None
        before = len(reading.faults)
        properties = self.properties
        for key in [key for key in value if key not in properties]:
            absent = [name for name in properties if name not in value]
            reading.fault(at(path, key), f"unknown {self.noun}{suggest(key, absent)}")
        made: dict[str, Any] = {}
        for key, prop in properties.items():
            shape = prop.shape
            if key in value:
                given = value[key]
                # Most values are valid scalars: a path is built only for an error.
                fits = type(shape) is Scalar and type(given) is shape.fits
                made[key] = given if fits else shape.read(given, at(path, key), reading)
            elif prop.is_required:
                reading.fault(at(path, key), f"missing, expected {prop.shape.label}")
        if len(reading.faults) > before or not reading.builds:
            return None
        try:
            return self.make(made)
        except (TypeError, ValueError) as error:
            # A dataclass may check more in __post_init__.
            reading.fault(path, str(error) or type(error).__name__)
            return None


@dataclass(slots=True)
class Named:
    """`type X = …`, which may refer to itself. `shape` is set when X is known."""

    name: str
    shape: Shape
    is_recursive: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        return self.shape.kinds

    @property
    def label(self) -> str:
        return self.name if self.is_recursive else self.shape.label

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"} if self.is_recursive else self.expanded()

    def expanded(self) -> Schema:
        return self.shape.schema()

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        return self.shape.read(value, path, reading)


@dataclass(frozen=True, slots=True)
class Either:
    """A union: the first member that fits wins."""

    members: tuple[Shape, ...]

    @property
    def kinds(self) -> frozenset[str]:
        every = [member.kinds for member in self.members]
        return frozenset() if not all(every) else frozenset().union(*every)

    @property
    def label(self) -> str:
        return " or ".join(dict.fromkeys(member.label for member in self.members))

    def schema(self) -> Schema:
        return union_of(member.schema() for member in self.members)

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        near: list[tuple[Shape, Reading]] = []
        for member in self.members:
            trial = Reading(reading.builds)
            read = member.read(value, path, trial)
            if not trial.faults:
                return read
            if not member.kinds or kind_of(value) in member.kinds:
                near.append((member, trial))
        meant = self._meant(value, near, path)
        if meant is None:
            reading.fault(path, f"expected {self.label}, got {show(value)}")
        else:
            reading.faults += meant.faults
        return None

    def _meant(self, value: Json, near: list[tuple[Shape, Reading]], path: str) -> Reading | None:
        """The member that the value was probably meant for: its errors are more useful than a list of all members."""
        if len(near) == 1:
            return near[0][1]
        tagged = [trial for member, trial in near if _has_tag(member, value)]
        if len(tagged) == 1:
            return tagged[0]
        if near and all(isinstance(bare(member), Record) for member, _ in near):
            if (wrong := _wrong_tag([member for member, _ in near], value, path)) is not None:
                return wrong
            return min((trial for _, trial in near), key=lambda trial: len(trial.faults))
        return None


def _has_tag(member: Shape, value: Json) -> bool:
    """Whether the value has a property that only this record can have, such as `kind: Literal["circle"]`."""
    if not isinstance(value, dict):
        return False
    tags = _tags(member).items()
    return any(name in value and any(known == value[name] for known, _ in tag.members) for name, tag in tags)


def _tags(member: Shape) -> dict[str, Choice]:
    record = bare(member)
    properties = record.properties if isinstance(record, Record) else {}
    return {name: shape for name, prop in properties.items() if isinstance(shape := bare(prop.shape), Choice)}


def _wrong_tag(members: list[Shape], value: Json, path: str) -> Reading | None:
    """All records have the tag, and none has this value: the error then lists the tags of all."""
    every = [_tags(member) for member in members]
    for name in every[0]:
        if isinstance(value, dict) and name in value and all(name in tags for tags in every):
            choices = Choice(tuple(choice for tags in every for choice in tags[name].members))
            reading = Reading(builds=False)
            choices.read(value[name], at(path, name), reading)
            if reading.faults:
                return reading
    return None


def bare(shape: Shape) -> Shape:
    """A shape without its description and its name."""
    while isinstance(shape, Described | Named):
        shape = shape.shape
    return shape


@dataclass(frozen=True, slots=True)
class Described:
    """Annotated[X, "text", Bounds(…)]: a description, and more keywords of the schema."""

    shape: Shape
    text: str | None = None
    keywords: Schema = field(default_factory=dict)

    @property
    def kinds(self) -> frozenset[str]:
        return self.shape.kinds

    @property
    def label(self) -> str:
        return self.shape.label

    def schema(self) -> Schema:
        schema = self.shape.schema() | ({"description": self.text} if self.text else {})
        return with_keywords(schema, self.keywords)

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        before = len(reading.faults)
        read = self.shape.read(value, path, reading)
        if len(reading.faults) == before:
            for fault in check_bounds(self.keywords, value):
                reading.fault(path, fault)
        return read
