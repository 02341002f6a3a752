"""What a local commit does to the disk, in which order, and what it makes of a failing one."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from strandline.tableformat.errors import (
    AccessDenied,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    UnsupportedStore,
)
from strandline.tableformat.storage import Put
from strandline.tableformat.stores.disk import OsDisk
from strandline.tableformat.stores.local import TEMPORARY, LocalStorage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MANIFEST = "_strandline/manifests/1"
SEGMENT = "w0-60/shard-0/batch-1.parquet"


class ScriptedDisk(OsDisk):
    """The real disk, written down, with faults at the calls that a test names."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.faults: dict[str, int] = {}
        """Method, or "method path-ending", to the errno it fails with."""
        self._files: dict[int, str] = {}
        self._lock = threading.Lock()

    def _note(self, method: str, path: str) -> None:
        with self._lock:
            self.calls.append((method, path))
        for fault, code in self.faults.items():
            name, _, ending = fault.partition(" ")
            if name == method and path.endswith(ending):
                raise OSError(code, os.strerror(code), path)

    def open_new(self, path: str) -> int:
        self._note("open_new", path)
        fd = super().open_new(path)
        self._files[fd] = path
        return fd

    def write(self, fd: int, data: memoryview) -> None:
        if "write" in self.faults:
            super().write(fd, data[: len(data) // 2])
        self._note("write", self._files[fd])
        super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._note("fsync", self._files.get(fd, "folder"))
        super().fsync(fd)

    def close(self, fd: int) -> None:
        self._files.pop(fd)
        super().close(fd)

    def fsync_dir(self, path: str) -> None:
        self._note("fsync_dir", path)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def link(self, source: str, target: str) -> None:
        self._note("link", target)
        super().link(source, target)

    def rename_noreplace(self, source: str, target: str) -> None:
        self._note("rename", target)
        super().rename_noreplace(source, target)

    def unlink(self, path: str) -> None:
        self._note("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._note("mkdir", path)
        super().mkdir(path)

    def read(self, path: str) -> bytes:
        self._note("read", path)
        return super().read(path)

    def scan(self, path: str) -> list[tuple[str, bool]]:
        self._note("scan", path)
        return super().scan(path)

    def try_lock(self, path: str, pauses: Iterable[float] = ()) -> int | None:
        self._note("try_lock", path)
        return super().try_lock(path, pauses)


@pytest.fixture
def disk() -> ScriptedDisk:
    """Return a disk without faults."""
    return ScriptedDisk()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Return a root two folders below one that exists."""
    return str(tmp_path / "lake" / "table")


def storage_on(disk: ScriptedDisk, root: str) -> LocalStorage:
    """Return a storage whose calls come in one order."""
    return LocalStorage(root, disk, background=False)


@pytest.mark.parametrize("background", [False, True])
def test_everything_is_durable_before_the_link_and_the_name_after_it(
    disk: ScriptedDisk, root: str, *, background: bool
) -> None:
    """[X5] File, its folder, every folder made on the way, the manifest: then the link."""
    storage = LocalStorage(root, disk, background=background)
    pending = storage.write_new(SEGMENT, b"data")
    storage.put_if_absent(MANIFEST, b"manifest", after=[pending])

    link = disk.calls.index(("link", f"{root}/{MANIFEST}"))
    before, after = disk.calls[:link], disk.calls[link + 1 :]
    written = before.index(("write", f"{root}/{SEGMENT}"))
    synced = before.index(("fsync", f"{root}/{SEGMENT}"))
    named = before.index(("fsync_dir", f"{root}/w0-60/shard-0"))
    assert written < synced < named
    temporary = [path for call, path in before if call == "fsync" and TEMPORARY in path]
    assert len(temporary) == 1
    for call, made in list(before):
        if call == "mkdir" and os.path.isdir(made):  # noqa: PTH112 - as recorded
            parent = os.path.dirname(made)  # noqa: PTH120 - as recorded
            made_at = before.index(("mkdir", made))
            assert ("fsync_dir", parent) in before[made_at:], f"{made} could vanish"
    assert after[-1] == ("fsync_dir", f"{root}/_strandline/manifests")


def test_a_warm_commit_repeats_no_folder_work(disk: ScriptedDisk, root: str) -> None:
    """Two files cost two file syncs, their folder's, and the one after the link."""
    storage = storage_on(disk, root)
    storage.put_if_absent(MANIFEST, b"1", after=[storage.write_new(SEGMENT, b"1")])
    disk.calls.clear()

    storage.put_if_absent(
        "_strandline/manifests/2", b"2", after=[storage.write_new("w0-60/shard-0/b", b"2")]
    )

    assert [call for call, _ in disk.calls] == [
        "open_new",
        "write",
        "fsync",
        "fsync_dir",
        "open_new",
        "write",
        "fsync",
        "link",
        "unlink",
        "fsync_dir",
    ]


def test_folders_of_another_process_are_synced_once(disk: ScriptedDisk, root: str) -> None:
    """[X5] Who made a folder may not have synced it; our commit must not stand on that."""
    LocalStorage(root).write_new(SEGMENT, b"1").wait()
    storage = storage_on(disk, root)
    storage.write_new("w0-60/shard-0/b", b"2").wait()
    assert ("fsync_dir", f"{root}/w0-60") in disk.calls
    assert ("fsync_dir", root) in disk.calls
    assert not any(call == "mkdir" for call, _ in disk.calls)


def test_a_crash_before_the_link_leaves_no_version(disk: ScriptedDisk, root: str) -> None:
    """[X5] A process that dies between write and link leaves a temporary file that nobody lists."""
    storage = storage_on(disk, root)
    disk.faults = {"link": errno.EIO, "unlink": errno.EIO}
    with pytest.raises(StorageFailed):
        storage.put_if_absent(MANIFEST, b"1")
    disk.faults = {}
    assert storage.list("_strandline/manifests/") == []
    left = [path for path, _ in storage.walk("")]
    assert len(left) == 1
    assert left[0].startswith(f"_strandline/manifests/{TEMPORARY}")
    assert storage.put_if_absent(MANIFEST, b"2") is Put.CREATED


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_hard_links_an_exclusive_rename_decides(
    disk: ScriptedDisk, root: str, code: int
) -> None:
    """[M2] Some disks know no links; the first create wins there too."""
    storage = storage_on(disk, root)
    disk.faults = {"link": code}
    assert storage.put_if_absent(MANIFEST, b"1") is Put.CREATED
    assert storage.put_if_absent(MANIFEST, b"2") is Put.EXISTS
    assert storage.read(MANIFEST) == b"1"
    assert [path for path, _ in storage.walk("")] == [MANIFEST]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL])
def test_a_disk_with_neither_is_refused(disk: ScriptedDisk, root: str, code: int) -> None:
    """[M2] Better no table than one where two writers can both win."""
    storage = storage_on(disk, root)
    disk.faults = {"link": errno.EPERM, "rename": code}
    with pytest.raises(UnsupportedStore, match="neither hard links nor an exclusive rename"):
        storage.put_if_absent(MANIFEST, b"1")
    assert list(storage.walk("")) == []


def test_a_name_that_could_not_be_synced_is_unclear_until_it_is(
    disk: ScriptedDisk, root: str
) -> None:
    """[X5] The retry finds the name, but success is told only after the folder is synced."""
    storage = storage_on(disk, root)
    storage.put_if_absent(MANIFEST, b"1")
    disk.faults = {"fsync_dir manifests": errno.EIO}
    for _ in range(2):
        with pytest.raises(OutcomeUnclear, match="could not make it durable"):
            storage.put_if_absent("_strandline/manifests/2", b"2")
    disk.faults = {}
    disk.calls.clear()
    assert storage.put_if_absent("_strandline/manifests/2", b"2") is Put.EXISTS
    assert disk.calls[-1] == ("fsync_dir", f"{root}/_strandline/manifests")


def test_a_temporary_name_that_stays_is_no_failure(disk: ScriptedDisk, root: str) -> None:
    """Nothing after the link turns success into failure."""
    storage = storage_on(disk, root)
    disk.faults = {"unlink": errno.EIO}
    assert storage.put_if_absent(MANIFEST, b"1") is Put.CREATED
    assert storage.list("_strandline/manifests/") == ["1"]


@pytest.mark.parametrize(
    ("fault", "code", "kind", "words"),
    [
        ("write", errno.ENOSPC, StorageFailed, "the disk is full"),
        ("write", errno.EDQUOT, StorageFailed, "quota"),
        ("fsync", errno.EIO, StorageFailed, "Input/output error"),
        ("open_new", errno.EACCES, AccessDenied, "Permission denied"),
        ("open_new", errno.EROFS, AccessDenied, "Read-only file system"),
        ("open_new", errno.EMFILE, StorageFailed, "too many open files"),
        ("mkdir", errno.EACCES, AccessDenied, "Permission denied"),
        ("fsync_dir", errno.EIO, StorageFailed, "Input/output error"),
    ],
)
def test_a_failing_disk_is_told_in_plain_words(
    disk: ScriptedDisk, root: str, fault: str, code: int, *, kind: type[Exception], words: str
) -> None:
    """[X5] A write that failed leaves no torn file behind and says why."""
    storage = storage_on(disk, root)
    disk.faults = {fault: code}
    with pytest.raises(kind, match=words) as caught:
        storage.write_new(SEGMENT, b"data").wait()
    assert SEGMENT in str(caught.value)
    with pytest.raises(kind, match=words):
        storage.put_if_absent(MANIFEST, b"1")
    disk.faults = {}
    assert [path for path, _ in storage.walk("") if path != SEGMENT] == []
    if fault != "fsync_dir":
        assert list(storage.walk("")) == []


def test_only_a_missing_file_is_missing(disk: ScriptedDisk, root: str) -> None:
    """A file in the way, a folder, or a refused read is an error of another kind."""
    storage = storage_on(disk, root)
    storage.put_if_absent("a/b", b"1")
    for path in ("a/b/c", "a"):
        with pytest.raises(StorageFailed) as caught:
            storage.read(path)
        assert not isinstance(caught.value, ObjectMissing)
        with pytest.raises(StorageFailed) as caught:
            storage.size(path)
        assert not isinstance(caught.value, ObjectMissing)
    with pytest.raises(StorageFailed, match="is a file, not a folder"):
        storage.put_if_absent("a/b/c", b"1")
    disk.faults = {"read": errno.EACCES}
    with pytest.raises(AccessDenied):
        storage.read("a/b")
    disk.faults = {"scan": errno.EACCES}
    with pytest.raises(AccessDenied):
        storage.list("a/")


def test_a_name_is_never_written_twice(disk: ScriptedDisk, root: str) -> None:
    """A new file's name is random; if it exists all the same, the file there is kept."""
    storage = storage_on(disk, root)
    storage.write_new(SEGMENT, b"first").wait()
    with pytest.raises(StorageFailed, match="exists already"):
        storage.write_new(SEGMENT, b"second").wait()
    assert storage.read(SEGMENT) == b"first"


def test_the_root_may_lie_in_a_folder_that_cannot_be_synced(disk: ScriptedDisk, root: str) -> None:
    """A user may own the table's folder and have no right to read the one above."""
    os.makedirs(root)  # noqa: PTH103 - root is text
    storage = storage_on(disk, root)
    disk.faults = {"fsync_dir /lake": errno.EACCES}
    assert storage.put_if_absent(MANIFEST, b"1") is Put.CREATED


def test_empty_folders_of_an_expired_window_go_away(root: str) -> None:
    """Folders that hold a file stay; a later write makes a removed one again."""
    storage = LocalStorage(root)
    storage.write_new(SEGMENT, b"1").wait()
    storage.write_new("w60-60/shard-0/a", b"1").wait()
    storage.delete([SEGMENT])
    storage.remove_empty_folders("w0-60/")
    storage.remove_empty_folders("w60-60/")
    storage.remove_empty_folders("absent/")
    storage.remove_empty_folders("")
    assert sorted(os.listdir(root)) == ["w60-60"]  # noqa: PTH208 - names are all we compare
    storage.write_new(SEGMENT, b"2").wait()
    assert storage.read(SEGMENT) == b"2"


def test_a_disk_without_locks_is_no_error(disk: ScriptedDisk, root: str) -> None:
    """The lock is a courtesy; the link decides."""
    storage = storage_on(disk, root)
    storage.put_if_absent(MANIFEST, b"1")
    disk.faults = {"try_lock": errno.ENOLCK}
    with storage.commit_lock() as held:
        assert held is False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_with_threads_of_its_own(root: str) -> None:
    """[X5] After the parent's threads have started, a child does not wait for them."""
    storage = LocalStorage(root)
    storage.write_new("a", b"1").wait()
    child = os.fork()
    if child == 0:
        ok = False
        try:
            pending: Any = storage.write_new("b", b"2")
            ok = storage.put_if_absent(MANIFEST, b"3", after=[pending]) is Put.CREATED
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert storage.read("b") == b"2"


class _NoFolders(OsDisk):
    """A disk that denies a parent which is there, as /proc does."""

    def mkdir(self, path: str) -> None:
        if path.endswith("x"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        super().mkdir(path)


def test_a_place_where_no_folder_can_be_made_is_refused(tmp_path: Path) -> None:
    """[X5] A clear error; trying the parent again and again would never end."""
    storage = LocalStorage(str(tmp_path / "x"), _NoFolders())
    with pytest.raises(StorageFailed, match="no folder can be made there"):
        storage.put_if_absent("a", b"1")
