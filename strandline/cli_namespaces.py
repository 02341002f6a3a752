"""`strandline catalog create-namespace …`: namespaces and their defaults from a shell."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING, Any

import strandline
from strandline import cli_input, cli_options, cli_output
from strandline.tableformat import types
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.schema import schema_from
from strandline.tableformat.timestamps import MODES

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    Make = Callable[..., ArgumentParser]

_DEFAULTS = ("ttl", "timestamping", "time_column", "create_on_append", "create_on_read")


def add_actions(action: Make) -> None:
    """Declare the actions; `action` makes one with the options that all have."""
    text = "create a namespace, with defaults for its tables"
    _add_defaults(action("create-namespace", text, _create, "namespace"))
    changed = action("set-namespace", "change a namespace's defaults", _set, "namespace")
    _add_defaults(changed)
    changed.add_argument(
        "--unset", action="append", default=[], metavar="NAME", help="remove a default; again"
    )
    action("describe-namespace", "print a namespace's defaults", _describe, "namespace")
    action("drop-namespace", "drop a namespace without tables", _drop, "namespace")


def _add_defaults(parser: ArgumentParser) -> None:
    parser.add_argument("--ttl", metavar="DURATION")
    parser.add_argument("--timestamping", choices=MODES)
    parser.add_argument("--time-column", metavar="NAME")
    parser.add_argument("--schema", metavar="NAME:TYPE,…", help="columns of tables without any")
    parser.add_argument(
        "--create-on-append", action=BooleanOptionalAction, help="an append creates what is missing"
    )
    parser.add_argument(
        "--create-on-read", action=BooleanOptionalAction, help="opening does; needs --schema"
    )


def _given(given: Namespace) -> dict[str, Any]:
    found = {name: getattr(given, name) for name in _DEFAULTS}
    if given.schema is not None:
        found["schema"] = _columns(given.schema)
    return {name: value for name, value in found.items() if value is not None}


def _columns(text: str) -> dict[str, Any]:
    columns = schema_from(cli_input.schema(text)).columns
    if not all(column.nullable for column in columns):
        raise InvalidInput("columns of a namespace's schema may be null: name them as NAME:TYPE")
    return {column.name: types.to_json(column.type) for column in columns}


def _create(given: Namespace) -> int:
    return _tell(given, _catalog(given).create_namespace(given.namespace, **_given(given)))


def _set(given: Namespace) -> int:
    changes = {**_given(given), **dict.fromkeys(_unset(given))}
    return _tell(given, _catalog(given).set_namespace(given.namespace, **changes))


def _unset(given: Namespace) -> list[str]:
    names = [name.replace("-", "_") for name in given.unset]
    for name in set(names) & set(_given(given)):
        raise InvalidInput(f"{name} cannot be set and removed at once. Nothing was changed.")
    return names


def _describe(given: Namespace) -> int:
    return _tell(given, _catalog(given).describe_namespace(given.namespace))


def _drop(given: Namespace) -> int:
    return _tell(given, _catalog(given).drop_namespace(given.namespace))


def _catalog(given: Namespace) -> strandline.Catalog:
    return strandline.Catalog(given.root, cli_options.storage(given))


def _tell(given: Namespace, info: strandline.NamespaceInfo) -> int:
    cli_output.print_facts(info.to_json(), as_json=given.json)
    return 0
