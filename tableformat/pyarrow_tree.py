"""Taking a pyarrow expression apart.

pyarrow shows the parts of an expression to nobody but its own pickles. A pickle is a record batch:
the metadata of its schema lists calls, their arguments and their ends in the order of writing, its
columns hold the literals and the options of calls, with their types. That is exact, where the
printed form is not (1 and 1.0 print alike). What does not look exactly so is refused.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.tableformat.column_names import ColumnName

T = TypeVar("T")

_POINTER_BYTES: Final = ctypes.sizeof(ctypes.c_void_p)
_capsule_pointer: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Field(NamedTuple):
    """A column, or a field inside a struct."""

    name: ColumnName


class Value(NamedTuple):
    """A literal, with its type."""

    scalar: Any


Options = dict[str, Any]
"""The options of a call, each a pyarrow scalar."""


def fold(
    expression: Any,
    leaf: Callable[[Field | Value], T],
    call: Callable[[str, list[T], Options], T],
) -> T:
    """Build something from an expression, arguments before their calls; no depth is too deep."""
    try:
        _, (pickled,) = expression.__reduce__()
        batch = pa.ipc.open_file(pickled).get_batch(0)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _unknown(expression, str(error)) from None
    made: T = _Fold(expression, batch, leaf, call).run()
    return made


def columns_in(expression: Any) -> frozenset[str]:
    """The columns that an expression looks at."""

    def leaf(part: Field | Value) -> frozenset[str]:
        if isinstance(part, Value):
            return frozenset()
        return frozenset({part.name if isinstance(part.name, str) else part.name[0]})

    def call(_: str, arguments: list[frozenset[str]], __: Options) -> frozenset[str]:
        return frozenset().union(*arguments)

    return fold(expression, leaf, call)


def _unknown(expression: Any, reason: str) -> InvalidInput:
    text = str(expression)
    shown = text if len(text) <= 200 else text[:197] + "..."  # noqa: PLR2004 - two lines
    return InvalidInput(f"the pyarrow expression {shown} cannot be taken apart: {reason}")


class _Fold:
    def __init__(self, expression: Any, batch: pa.RecordBatch, leaf: Any, call: Any) -> None:
        self._expression, self._batch = expression, batch
        self._leaf, self._call = leaf, call
        self._open: list[tuple[str, list[Any], Options]] = []
        """Calls whose end has not come, the outermost first, behind a frame for the result."""

    def run(self) -> Any:
        found: list[Any] = []
        self._open.append(("", found, {}))
        words = _metadata(self._batch.schema)
        for kind, text in words:
            self._take(kind, text, words)
        if len(self._open) != 1 or len(found) != 1:
            raise self._unexpected()
        return found[0]

    def _take(self, kind: str, text: str, words: Iterator[tuple[str, str]]) -> None:
        _, arguments, options = self._open[-1]
        if kind == "call":
            self._open.append((text, [], {}))
        elif kind == "end" and len(self._open) > 1 and text == self._open[-1][0]:
            self._open.pop()
            self._open[-1][1].append(self._call(text, arguments, options))
        elif kind == "field_ref":
            arguments.append(self._leaf(Field(text)))
        elif kind == "nested_field_ref":
            arguments.append(self._leaf(Field(self._path(int(text), words))))
        elif kind == "literal":
            arguments.append(self._leaf(Value(self._held(text))))
        elif kind == "options":
            given = self._held(text)
            options.update({name: given[name] for name in given})
        else:
            raise self._unexpected()

    def _path(self, length: int, words: Iterator[tuple[str, str]]) -> tuple[str, ...]:
        parts = [next(words, ("", "")) for _ in range(length)]
        if length < 2 or any(kind != "field_ref" for kind, _ in parts):  # noqa: PLR2004 - a path
            raise self._unexpected()
        return tuple(name for _, name in parts)

    def _held(self, place: str) -> pa.Scalar:
        return self._batch.column(int(place))[0]

    def _unexpected(self) -> InvalidInput:
        return _unknown(self._expression, "this version of pyarrow writes it in an unknown way")


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Keys and values in their order, also where a key comes again, which a dict would drop.

    They are read from Arrow's C data interface: the third pointer of an ArrowSchema leads to a
    count, and for each key and value to a length and that many bytes.
    """
    capsule = schema.__arrow_c_schema__()
    structure = _capsule_pointer(capsule, b"arrow_schema")
    address = ctypes.c_void_p.from_address(structure + 2 * _POINTER_BYTES).value
    if address is None:
        return
    count = ctypes.c_int32.from_address(address).value
    address += 4
    for _ in range(count):
        pair = []
        for _ in range(2):
            length = ctypes.c_int32.from_address(address).value
            pair.append(ctypes.string_at(address + 4, length).decode())
            address += 4 + length
        yield pair[0], pair[1]
