"""A small table with every kind of metadata file, and what reading it should give."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from strandline import api
from strandline.catalog import documents
from strandline.catalog.chain import Chain
from strandline.catalog.manifest_service import ManifestService
from strandline.catalog.page_cache import PAGES
from strandline.tableformat import codec, paths
from strandline.tableformat.errors import StrandlineError
from strandline.tableformat.stores import memory
from strandline.tableformat.windows import HOUR_MS
from tests.faults.world import START_MS, World, scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from strandline.tableformat.manifest import Manifest, Position
    from strandline.tableformat.storage import Storage

NAME = "corruption"
SCHEMA = {"at": "int64", "n": "int32", "x": "float64", "s": "string", "b": "binary", "l": "bool"}
HIDDEN = ["_seq", "_ts", "_window"]
_SMALL = {
    "ROLL_AT": 3,
    "ROLL_STEP": 1,
    "ROLL_ALL_AT": 4,
    "LEAST_PAGE": 2,
    "TIER_FACTOR": 8,
    "FOLD_WINDOWS_ABOVE": 2,
    "KEEP_WINDOWS": 1,
    "FOLD_POSITIONS_ABOVE": 2,
    "KEEP_POSITIONS": 1,
}


def _rows(number: int, hour: int) -> list[dict[str, Any]]:
    at = START_MS - hour * HOUR_MS + 1_000_000
    return [
        {
            # The first and the last batch go back and forth between two windows: `_off` is stored.
            "at": at - 60_000 * i - (HOUR_MS if number in (0, 6) and i == 1 else 0),
            "n": number * 10 + i,
            "x": float("nan") if number == 1 else number / 8 - i,
            "s": None if i == 2 else f"text {number} {i}",
            "b": bytes([number, i]),
            "l": bool(i % 2),
        }
        for i in range(3)
    ]


@cache
def objects() -> dict[str, bytes]:
    """Every object of the table: inline segments, all kinds of pages, two schema versions."""
    memory._shelves.pop(NAME, None)  # noqa: SLF001 - begin with nothing
    with scripted(0, _SMALL):
        world = World(0, memory.MemoryStorage(NAME))
        runtime = world.runtime("writer")
        table = api.create_in(
            world.store, SCHEMA, runtime=runtime, time_column="at", ttl="1d", uncapped=True
        )
        for number, hour in enumerate((9, 9, 8, 8, 7, 7, 6)):
            if number == 4:
                table.evolve(add={"later": "int64"}, widen={"n": "int64"}, rename={"s": "t"})
            rows = _rows(number, hour)
            for row in rows if number >= 4 else []:
                row["t"], row["later"] = row.pop("s"), 2**60 + number
            table.append(rows, writer_id=f"writer-{number}", batch=number)
    found = {path: world.store.read(path) for path, _ in world.store.walk("")}
    head = Chain(world.store).find_head().manifest
    assert head.segments
    assert head.windows
    assert head.window_pages
    assert head.position_pages
    assert head.schema.id == 2
    return {path: data for path, data in found.items() if path in _needed(world.store, head)}


def _needed(storage: Storage, head: Manifest) -> set[str]:
    """The head and what it refers to; older versions play no part in reading it."""
    found = {paths.manifest_path(head.version)}
    found |= {page.path for page in head.window_pages}
    found |= {page.path for page in head.position_pages}
    folded = documents.window_pages(ManifestService(storage), head.window_pages)
    windows = [*head.windows, *(entry for page in folded for entry in page)]
    found |= {page.path for window in windows for page in window.pages}
    table = api.open_in(storage)
    return found | set(table.files()["path"].to_pylist())


@cache
def head() -> Manifest:
    """The undamaged head."""
    return Chain(fresh()).find_head().manifest


def head_path() -> str:
    """Where the head's manifest lies."""
    return next(path for path in objects() if path.startswith(paths.MANIFESTS))


def head_document() -> Any:
    """The head's manifest as a JSON value, to be changed by a test."""
    return codec.decode_document(objects()[head_path()], "manifest")


def metadata_paths() -> dict[str, str]:
    """Each metadata file by what it is."""
    manifest = head()
    listed = {"manifest": head_path()}
    folded = documents.window_pages(ManifestService(fresh()), manifest.window_pages)
    windows = [*manifest.windows, *(entry for page in folded for entry in page)]
    listed |= {"segment_page": windows[-1].pages[0].path}
    listed |= {"window_page": manifest.window_pages[0].path}
    listed |= {"position_page": manifest.position_pages[0].path}
    return listed


def data_paths() -> list[str]:
    """The data files: the first of an old schema, the last inline in the manifest."""
    return sorted(path for path in objects() if path.startswith("w"))


def fresh(changed: dict[str, bytes] | None = None) -> memory.MemoryStorage:
    """Return a store with the table as it is, but for the objects named."""
    storage = memory.MemoryStorage(NAME)
    shelf = memory._Shelf()  # noqa: SLF001 - filled at once, thousands of times
    shelf.objects = {**objects(), **(changed or {})}
    shelf.keys = sorted(shelf.objects)
    storage._shelf = shelf  # noqa: SLF001
    PAGES.clear()
    return storage


class Raw:
    """JSON text that no encoder would write, to stand in a document."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __deepcopy__(self, memo: object) -> Raw:
        return self


def encoded(document: Any) -> bytes:
    """A document as a writer would store it, with every `Raw` as it is."""
    raws: list[bytes] = []

    def placeholder(value: Any) -> str:
        assert isinstance(value, Raw)
        raws.append(value.text.encode("utf-8", "surrogatepass"))
        return f"@raw {len(raws) - 1}@"

    text = orjson.dumps(document, default=placeholder)
    for number, raw in enumerate(raws):
        text = text.replace(f'"@raw {number}@"'.encode(), raw)
    return codec.encode_document(text)


def with_document(document: Any) -> memory.MemoryStorage:
    """Return the table with another head manifest, encoded as a writer would."""
    return fresh({head_path(): encoded(document)})


def read_all(storage: memory.MemoryStorage) -> pa.Table:
    """Every row of the table, hidden columns included."""
    table = api.open_in(storage)
    return table.scan([*table.schema.names, *HIDDEN]).to_arrow()


def segment_is_right_or_refused(storage: memory.MemoryStorage, path: str, where: str) -> bool:
    """The same for the rows of one data file, which is all that its bytes can change."""
    first, last = seq_ranges()[path]

    def read() -> bool:
        table = api.open_in(storage)
        columns = [*table.schema.names, *HIDDEN]
        rows = table.scan(columns, start_seq=first, end_seq=last + 1).to_arrow()
        right = right_rows().slice(first, last + 1 - first)
        return repr(rows.to_pylist()) == repr(right.to_pylist())

    return _settled(read, where)


@cache
def seq_ranges() -> dict[str, tuple[int, int]]:
    """The sequence numbers of each data file."""
    files = api.open_in(fresh()).files().to_pylist()
    return {file["path"]: (file["min_seq"], file["max_seq"]) for file in files}


def read_positions(storage: memory.MemoryStorage) -> dict[str, Position]:
    """What the pages say of all writers."""
    manifest = Chain(storage).find_head().manifest
    service = ManifestService(storage)
    return documents.cold_positions(service, manifest, [f"writer-{n}" for n in range(7)])


@cache
def right_rows() -> pa.Table:
    """What an undamaged table gives."""
    rows = read_all(fresh())
    assert rows.num_rows == 21
    return rows


@cache
def right_positions() -> dict[str, Position]:
    """What undamaged pages say."""
    found = read_positions(fresh())
    assert found
    return found


def same_rows(rows: pa.Table) -> bool:
    """Whether these are the right rows; NaN is NaN."""
    right = right_rows()
    return bool(rows.schema == right.schema) and repr(rows.to_pylist()) == repr(right.to_pylist())


def is_right_or_refused(storage: memory.MemoryStorage, where: str) -> bool:
    """True for the right rows, False for a clear error, and an assertion for all else."""
    return _settled(lambda: same_rows(read_all(storage)), where)


def positions_are_right_or_refused(storage: memory.MemoryStorage, where: str) -> bool:
    """The same for what pages say of writers."""
    return _settled(lambda: read_positions(storage) == right_positions(), where)


def _settled(read: Callable[[], bool], where: str) -> bool:
    try:
        right = read()
    except StrandlineError:
        return False
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {str(error)[:200]}") from error
    assert right, f"{where}: wrong rows"
    return True


@contextmanager
def only_strandline_errors(where: str) -> Iterator[None]:
    """Let a `StrandlineError` pass and turn every other exception into a failure."""
    try:
        yield
    except StrandlineError:
        pass
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {str(error)[:200]}") from error
