"""Which URLs open a table, and how the others are refused."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from strandline.tableformat.errors import InvalidInput, StrandlineError, UnsupportedStore
from strandline.tableformat.storage import open_storage

if TYPE_CHECKING:
    from pathlib import Path


def test_plain_paths_and_file_urls_name_the_same_folder(tmp_path: Path) -> None:
    """A path, a PathLike and each spelling of a file URL open one table."""
    folder = tmp_path / "a b%20c"
    for url in (
        str(folder),
        folder,
        f"{folder}/",
        folder.as_uri(),
        folder.as_uri().replace("file://", "FILE://localhost"),
        folder.as_uri().replace("file://", "file:"),
    ):
        assert open_storage(url).url == str(folder)


def test_a_relative_path_is_fixed_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing the working folder later does not move the table."""
    monkeypatch.chdir(tmp_path)
    storage = open_storage("lake:2024/~user/table")
    monkeypatch.chdir("/")
    storage.put_if_absent("x", b"1")
    assert (tmp_path / "lake:2024" / "~user" / "table" / "x").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://bucket", "s3://bucket"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("abfs://box@acct.dfs.core.windows.net/a", "abfs://box@acct.dfs.core.windows.net/a"),
        ("az://box/a", "az://box/a"),
        ("memory://name/a", "memory://name/a"),
    ],
)
def test_a_store_is_named_by_its_url(url: str, shown: str) -> None:
    """[C10] Opening sends nothing and shows the URL only."""
    storage = open_storage(url, {"key": "canary-value-1"})
    assert storage.url == shown
    assert repr(storage) == f"<{type(storage).__name__} {shown}>"


@pytest.mark.parametrize(
    "url",
    [
        "http://host/table",
        "https://host/table",
        "ftp://host/table",
        "hdfs://host/table",
        "simplecache::s3://bucket/table",
        "zip::file:///x.zip",
        "memory2://x",
    ],
)
def test_other_stores_are_refused_with_what_is_supported(url: str) -> None:
    """[C10] A store without an atomic create holds no table, and the error names those with."""
    with pytest.raises(UnsupportedStore, match="s3://, gs://"):
        open_storage(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "  ",
        None,
        7,
        b"/tmp/x",
        "a\0b",
        "s3://bucket/a\nb",
        "s3:/bucket/a",
        "s3:bucket",
        "s3://",
        "s3:///a",
        "s3://bucket//a",
        "s3://bucket/a/../b",
        "s3://buck et/a",
        "memory://",
        "file://host/a",
        "file://",
        "file:relative",
        "file:///a%00b",
        "abfs://@acct.dfs.core.windows.net/a",
    ],
)
def test_a_bad_url_is_invalid_input(url: Any) -> None:
    """A mistake is told at once, before anything is touched."""
    with pytest.raises(InvalidInput):
        open_storage(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIACANARY:canarysecret@bucket/a",
        "s3://AKIACANARY:canary/secret@bucket/a",
        "s3://canarysecret@bucket/a",
        "gs://user:canarysecret@bucket/a",
        "abfs://box:canarysecret@acct.dfs.core.windows.net/a",
        "abfs://box/a?sig=canarysecret",
        "s3://bucket/a?X-Amz-Signature=canarysecret",
        "s3://bucket/a#canarysecret",
        "https://user:canarysecret@host/a",
        "file://user:canarysecret@host/a",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    """[C10] Neither the message nor the traceback shows them."""
    with pytest.raises(StrandlineError) as caught:
        open_storage(url)
    shown = "".join(traceback.format_exception(caught.value)[-1:])
    assert "canary" not in shown.lower()


@pytest.mark.parametrize("options", ["key=1", [("a", 1)], 7, {1: "x"}])
def test_storage_options_are_a_dict_of_names(options: Any) -> None:
    """Anything else is refused, without repeating it."""
    with pytest.raises(InvalidInput, match="storage_options"):
        open_storage("memory://x", options)


@pytest.mark.parametrize(("url", "extra"), [("gs://b/t", "gcs"), ("az://b/t", "azure")])
def test_a_missing_package_names_its_extra(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the optional package, the first use says how to install it."""
    for package in ("gcsfs", "adlfs"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(UnsupportedStore, match=rf"pip install 'strandline\[{extra}\]'"):
        open_storage(url, {"project": f"missing-{extra}"}).read("x")
