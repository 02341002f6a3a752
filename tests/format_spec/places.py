"""Where the specification, its schemas and its tables lie, and how to read them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from strandline.tableformat import codec

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "SPEC.md"
FORMAT_SPEC = ROOT / "format_spec"
SCHEMAS = FORMAT_SPEC / "schemas"
GOLDEN = FORMAT_SPEC / "golden"
CONFORMANCE = FORMAT_SPEC / "conformance"
GOLDENS = sorted(GOLDEN.glob("v*_*"))
REFERENCE_READER = CONFORMANCE / "reference_reader.py"


def load_schema(name: str) -> dict[str, Any]:
    """A JSON Schema of the format."""
    return dict(json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8")))


def definition(name: str) -> dict[str, Any]:
    """A part of a document."""
    return dict(load_schema("definitions")["$defs"][name])


def closed(schema: Any) -> Any:
    """The same schema, refusing every field it does not list."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # A condition looks at one field and says nothing about the others.
    out = {k: v if k in ("if", "then") else closed(v) for k, v in schema.items()}
    return {"additionalProperties": False, **out} if schema.get("type") == "object" else out


def validator(name: str, *, strict: bool = False) -> Draft202012Validator:
    """A validator for a document, or for a part of one by the name of its definition.

    Strict: unknown fields are refused, which no reader may do, but what we write has none.
    """
    shared = closed(load_schema("definitions")) if strict else load_schema("definitions")
    registry: Registry[Any] = Registry().with_resource(
        shared["$id"], Resource.from_contents(shared)
    )
    if (SCHEMAS / f"{name}.json").exists():
        schema = closed(load_schema(name)) if strict else load_schema(name)
    else:
        assert name in shared["$defs"], name
        schema = {"$ref": f"{shared['$id']}#/$defs/{name}"}
    return Draft202012Validator(schema, registry=registry)


def documents(table: Path) -> list[tuple[str, Any]]:
    """Every document of a table, with the name of its schema; not names that are no manifests."""
    found = []
    for file in sorted((table / "_strandline").rglob("*.json.lz4")):
        if file.parent.name == "manifests" and not file.name.startswith("0"):
            continue
        document = codec.decode_document(file.read_bytes(), file.name)
        kind = "manifest" if file.parent.name == "manifests" else document["kind"][:-1] + "_page"
        found.append((kind, document))
    for file in sorted(table.rglob("*.icx")):
        data = file.read_bytes()
        # Blobs come first; the catalog is the frame with which the file ends.
        start = data.rindex(codec.MAGIC)
        found.append(("index_catalog", codec.decode_document(data[start:], file.name)))
    return found


@dataclass(frozen=True)
class Example:
    """A JSON block of SPEC.md, with what its marker says."""

    kind: str
    argument: str
    golden: str
    text: str


def examples() -> list[Example]:
    """Every JSON block of SPEC.md; one without a marker has no kind."""
    text = SPEC.read_text(encoding="utf-8")
    pattern = r"(?:<!-- decode: (\w+)(?: (\w+))?(?:; golden: (\w+))? -->\n)?```json\n(.*?)```"
    return [Example(*(g or "" for g in match)) for match in re.findall(pattern, text, re.DOTALL)]


def table_after(heading: str) -> list[list[str]]:
    """The cells of the first table behind a text of SPEC.md, without its header."""
    text = SPEC.read_text(encoding="utf-8")
    lines = text[text.index(heading) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def fields_in(heading: str) -> set[str]:
    """The field names in the first column of that table."""
    return {name for row in table_after(heading) for name in re.findall(r"`([\w<>]+)`", row[0])}
