"""JSON schemas of what is written to MCAP files, part by part. No torch: robots' logs and recordings share them."""

from __future__ import annotations

import json
from typing import Any

Schema = dict[str, Any]
NUMBER, WHOLE, TEXT, FLAG = ({"type": kind} for kind in ("number", "integer", "string", "boolean"))


def record(**fields: Schema) -> Schema:
    """Something with fields."""
    return {"type": "object", "properties": fields}


def array(of: Schema) -> Schema:
    """Any number of something."""
    return {"type": "array", "items": of}


def titled(title: str, schema: Schema) -> Schema:
    """A schema with the name that Foxglove knows it by."""
    return {"title": title, **schema}


TIME = record(sec=WHOLE, nsec=WHOLE)
POINT = record(x=NUMBER, y=NUMBER, z=NUMBER)
QUATERNION = record(x=NUMBER, y=NUMBER, z=NUMBER, w=NUMBER)


def time_of(nanoseconds: int) -> dict[str, int]:
    """A moment as `TIME` has it."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return {"sec": seconds, "nsec": rest}


def register(writer: Any, name: str, schema: Schema) -> int:
    """Tell a writer of `mcap` of a schema; gives its number."""
    number: int = writer.register_schema(name, "jsonschema", json.dumps(schema).encode())
    return number
