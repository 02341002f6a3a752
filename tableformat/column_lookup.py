"""Which column, or which field inside a struct column, a name in a filter stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.tableformat.column_names import ColumnName, name_text
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.schema import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from strandline.tableformat.schema import Schema
    from strandline.tableformat.types import ColumnType

NO_STATS_ID: Final = -100
"""The id of everything that has neither stats nor indexes of its own: no column has it."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedField(Column):
    """A field inside a struct column. It is null where a struct around it is."""

    root: Column
    path: Path
    """Names from the outermost field to this one."""


def stored_column(column: Column) -> Column:
    """The column of the table that must be read for it."""
    return column.root if isinstance(column, NestedField) else column


@dataclass(frozen=True, slots=True)
class ColumnLookup:
    """The columns of a schema and the hidden ones, by name and by path."""

    schema: Schema
    hidden: Mapping[str, Column]

    def find(self, name: ColumnName) -> Column:
        """The column or field, or an error that says what there is instead."""
        if isinstance(name, tuple):
            return self._field_at(name)
        if name in self.hidden:
            return self.hidden[name]
        if name in self.schema.by_name or "." not in name:
            return self.schema.column(name)
        return self._field_called(name)

    def _field_at(self, path: Path) -> Column:
        joined = ".".join(path)
        if joined in self.schema.by_name and path[0] not in self.schema.by_name:
            raise InvalidInput(
                f"there is no column {path[0]!r}; the column {joined!r} has a dot in its name: "
                "write it in double quotes"
            )
        root = self.hidden.get(path[0]) or self.schema.column(path[0])
        kind, outer = root.type, name_text(path[0])
        for name in path[1:]:
            kind = _member(kind, name, outer)
            outer = f"{outer}.{name_text(name)}"
        return _field(root, path[1:], kind)

    def _field_called(self, name: str) -> Column:
        """The one field that the dots can mean; names of columns and fields may hold dots."""
        found = list(self._meanings(name))
        if not found:
            # No reading of the dots fits, so the plain one explains best what is missing.
            first, *rest = name.split(".")
            if first in self.schema.by_name and all(rest):
                return self._field_at((first, *rest))
            return self.schema.column(name)
        if len(found) > 1:
            readings = " or ".join(name_text((f.root.name, *f.path)) for f in found)
            raise InvalidInput(
                f"{name!r} may mean {readings}; in text put each name in double quotes, in Python "
                'write col("column")["field"]'
            )
        return found[0]

    def _meanings(self, name: str) -> Iterator[NestedField]:
        for root_name, rest in _splits(name):
            root = self.schema.by_name.get(root_name)
            if root is not None:
                for path, kind in _inside(root.type, rest):
                    yield _field(root, path, kind)


def _field(root: Column, path: Path, kind: ColumnType) -> NestedField:
    return NestedField(
        id=NO_STATS_ID,
        name=name_text((root.name, *path)),
        physical_name=root.physical_name,
        type=kind,
        root=root,
        path=path,
    )


def _member(kind: ColumnType, name: str, outer: str) -> ColumnType:
    if kind.name != "struct":
        raise InvalidInput(
            f"{outer} has type {kind}, which has no field {name!r}: a filter can look into "
            "structs only"
        )
    for field in kind.children:
        if field.name == name:
            return field.type
    names = ", ".join(field.name for field in kind.children)
    raise InvalidInput(f"there is no field {name!r} in {outer}; its fields are {names}")


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Each way to cut a name at a dot."""
    at = name.find(".")
    while at >= 0:
        yield name[:at], name[at + 1 :]
        at = name.find(".", at + 1)


def _inside(kind: ColumnType, name: str) -> Iterator[tuple[Path, ColumnType]]:
    """Each field of a struct, at any depth, that is called so, with the path to it."""
    if kind.name != "struct":
        return
    fields = {field.name: field.type for field in kind.children}
    if name in fields:
        yield (name,), fields[name]
    for outer, rest in _splits(name):
        if outer in fields:
            for path, found in _inside(fields[outer], rest):
                yield (outer, *path), found
