"""Where a warehouse lies, as users write it: one meaning, for everybody, or a refusal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainstem.delta_log import Topics
from mainstem.delta_log.store import (
    CloudPrefix,
    StoreFolder,
    open_warehouse,
    parse_local_directory,
    parse_warehouse,
)
from mainstem.delta_log.table import check_replay, load_table
from mainstem.delta_log.upkeep import LiveTable, create_checkpoint
from mainstem.errors import InvalidConfigError, StoreUnavailableError

ODD_NAMES = (
    "a b",
    " a ",
    "a%20b",
    "a%2520b",
    "%zz",
    "a#b",
    "a?b",
    "a:b",
    "~",
    "~root",
    "$HOME",
    "a'b",
    'a"b',
    "a`b",
    "a*b",
    "[ab]",
    "{a,b}",
    "a;b",
    "a&b=c",
    "..b",
    "grün",
    "日本",
)


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is empty, so that what is made there by mistake is seen."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.mark.parametrize(
    "uri", ["/d/e", "file:/d/e", "file:///d/e", "file://localhost/d/e", "FILE:///d/e"]
)
def test_a_local_path_and_the_forms_of_a_file_uri_mean_the_same_directory(uri: str) -> None:
    assert parse_local_directory(uri, "w").path == "/d/e"


@pytest.mark.parametrize(
    ("path", "meant"),
    [("//d", "/d"), ("///d//e/", "/d/e"), ("/d/./e", "/d/e"), ("/", "/"), ("file:////d", "/d")],
)
def test_slashes_and_dots_have_one_form(path: str, meant: str) -> None:
    assert parse_local_directory(path, "w").path == meant


def test_a_relative_path_begins_at_the_working_directory() -> None:
    assert parse_local_directory("w", "w").path == f"{os.getcwd()}/w"
    assert parse_local_directory("./s3:x", "w").path == f"{os.getcwd()}/s3:x"
    assert parse_local_directory(Path("w/x"), "w").path == f"{os.getcwd()}/w/x"
    assert parse_local_directory("./~/x", "w").path == f"{os.getcwd()}/~/x"
    assert parse_local_directory("~x", "w").path == f"{os.getcwd()}/~x"


def test_the_parent_of_a_linked_directory_is_its_real_one(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "inner")
    assert parse_local_directory(f"{tmp_path}/link/../w", "w").path == f"{tmp_path}/real/w"
    assert parse_local_directory(f"{tmp_path}/link", "w").path == f"{tmp_path}/link"


@pytest.mark.parametrize(
    "uri",
    [
        "s3n://bucket/x",
        "https://bucket.s3.amazonaws.com/x",
        "abfss://c@a.dfs.core.windows.net/x",
        "hdfs://name/x",
        "hdfs:/x",
        "dbfs:/x",
        "memory://",
        "x:y",
    ],
)
def test_another_store_is_refused_and_nothing_is_made(uri: str | Path) -> None:
    with pytest.raises(InvalidConfigError, match="in a store that is not supported") as told:
        open_warehouse(uri, create=True)
    assert told.value.facts["name"] == "warehouse"
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("S3://my.bucket-1/a b/=grün", "s3://my.bucket-1/a b/=grün"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_a_place_in_an_object_storage_service_has_one_form(uri: str, url: str) -> None:
    assert parse_warehouse(uri) == CloudPrefix(url)
    with pytest.raises(InvalidConfigError, match="not on this machine"):
        parse_local_directory(uri, "wal.directory")


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("s3:bucket", "names no bucket; write s3://bucket/prefix"),
        ("s3:/bucket/x", "names no bucket"),
        (Path("s3://bucket/x"), "names no bucket"),
        ("s3://", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://user:secret@host/x", "names no bucket"),
        ("az://", "names no container"),
        ("s3://bucket//x", "empty part"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/a/../b", r"'\.\.'"),
        ("s3://bucket/./b", r"'\.'"),
        ("s3://bucket/a%20b", "'%'"),
        ("s3://bucket/a?versionId=1", r"'\?'"),
        ("s3://bucket/a\\b", "backslash"),
        ("s3://bucket/a\nb", "control character"),
        ("~", "write the path out"),
        ("~/w", "or ./~/w for a directory of that name"),
        (Path("~/w"), "write the path out"),
        ("", "names no directory"),
        ("file:", "no absolute path"),
        ("file:d", "no absolute path"),
        ("file:./d", "no absolute path"),
        ("file://", "no absolute path"),
        ("file://elsewhere/x", "on another machine, elsewhere"),
        ("file:///a#b", "write %3F or %23"),
        ("file:///a?b", "write %3F or %23"),
        ("/a\\b", "backslash"),
        ("/a\nb", "control character"),
        ("/a\0b", "control character"),
        ("file:///a%00b", "control character"),
        ("file:///a%5Cb", "backslash"),
        ("file:///a%ff", "not UTF-8"),
        ("/a\udcff", "not UTF-8"),
    ],
)
def test_what_not_every_reader_would_understand_is_refused(uri: str | Path, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        open_warehouse(uri, create=True)
    assert os.listdir() == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_directory_with_an_odd_name_is_the_same_one_by_path_by_uri_and_for_delta_rs(
    tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    store = open_warehouse(str(place), create=True)
    topics = Topics(store)
    topics.create("t", 1)
    assert os.listdir(place) == ["topics"]
    table = StoreFolder(store, "topics/t")
    create_checkpoint(table, LiveTable.of(load_table(table)))
    assert (place / "topics/t/_delta_log/00000000000000000000.checkpoint.parquet").exists()
    check_replay(table, load_table(table))  # reads the table with delta-rs
    store.close()
    for uri in (place, place.as_uri(), os.path.relpath(place)):
        other = open_warehouse(uri)
        assert other.uri == str(place)
        assert Topics(other).names() == ["t"]
        other.close()
    assert os.listdir() == []


def test_a_warehouse_that_is_not_there_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="there is no warehouse at"):
        open_warehouse(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_warehouse_below_a_file_cannot_be_made_and_the_message_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "w"):
        with pytest.raises(StoreUnavailableError, match=r"cannot be created: .*is a file, not"):
            open_warehouse(place, create=True)
        with pytest.raises(StoreUnavailableError, match=r"there is no warehouse .*is a file, "):
            open_warehouse(place)
