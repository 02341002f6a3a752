"""Copies of a table whose index files are gone or damaged, or one of whose data files is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.tableformat.storage import open_storage
from tests.tables import memory_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from strandline.tableformat.storage import Storage

INDEX, DATA = ".icx", ".parquet"
Objects = dict[str, bytes]


def objects_of(storage: Storage) -> Objects:
    """All objects of a table."""
    return {path: storage.read(path) for path, _ in sorted(storage.walk(""))}


def copy_of(objects: Objects) -> Storage:
    """A table of these objects, at a place where nothing was ever cached."""
    storage = open_storage(memory_url())
    for path, data in objects.items():
        storage.write_new(path, data).wait()
    return storage


def discard(storage: Storage) -> None:
    """Free the memory of a table."""
    storage.delete([path for path, _ in storage.walk("")])


def index_files(objects: Objects) -> list[str]:
    """Paths of index files."""
    return [path for path in objects if path.endswith(INDEX)]


def without_indexes(objects: Objects, random: Random) -> Objects:
    """Every index file is missing."""
    del random
    return {path: data for path, data in objects.items() if not path.endswith(INDEX)}


def with_some_indexes(objects: Objects, random: Random) -> Objects:
    """Index files are missing here and there."""
    lost = {path for path in index_files(objects) if random.random() < 0.5}
    return {path: data for path, data in objects.items() if path not in lost}


def with_damaged_indexes(objects: Objects, random: Random) -> Objects:
    """Every index file has wrong bytes, is cut or extended, or is another segment's."""
    out = dict(objects)
    files = index_files(objects)
    for path in files:
        harms = [_flipped, _zeroed, _scrambled, _cut, _extended, _exchanged(objects, files)]
        harm = random.choice(harms)
        out[path] = harm(objects[path], random)
    return out


def with_damaged_data(objects: Objects, random: Random) -> Objects:
    """One segment has flipped bits or is cut."""
    files = [p for p in objects if p.endswith(DATA) and not p.startswith("_strandline/")]
    path = random.choice(files)
    harm = random.choice([_flipped, _flipped, _cut])
    return {**objects, path: harm(objects[path], random)}


COPIES: dict[str, Callable[[Objects, Random], Objects]] = {
    "missing": without_indexes,
    "some": with_some_indexes,
    "corrupt": with_damaged_indexes,
    "data": with_damaged_data,
}


def _flipped(data: bytes, random: Random) -> bytes:
    harmed = bytearray(data)
    for _ in range(random.choice([1, 1, 3, 50])):
        harmed[random.randrange(len(harmed))] ^= 1 << random.randrange(8)
    return bytes(harmed)


def _zeroed(data: bytes, random: Random) -> bytes:
    """The beginning is zeros: a file with a hole, whose end is sound."""
    hole = random.randint(1, len(data))
    return bytes(hole) + data[hole:]


def _scrambled(data: bytes, random: Random) -> bytes:
    """Half of all bytes of a stretch are others."""
    begin = random.randrange(len(data))
    end = random.randint(begin + 1, len(data))
    middle = (random.choice([byte, random.randrange(256)]) for byte in data[begin:end])
    return data[:begin] + bytes(middle) + data[end:]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def _extended(data: bytes, random: Random) -> bytes:
    return data + random.randbytes(random.randint(1, 40))


def _exchanged(objects: Objects, files: list[str]) -> Callable[[bytes, Random], bytes]:
    return lambda _, random: objects[random.choice(files)]
