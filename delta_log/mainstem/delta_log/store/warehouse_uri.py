"""From where a warehouse lies, as users write it, to its store: the same place for everybody.

A new kind of store gets a class beside these, and a branch in each of the two functions.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from mainstem.config import StoreSettings
from mainstem.delta_log.store.cloud import CloudStore
from mainstem.delta_log.store.disk_cache import DiskCache
from mainstem.delta_log.store.local import LocalStore
from mainstem.delta_log.store.object_store import NotFound, Warehouse
from mainstem.errors import InvalidConfigError, StoreUnavailableError

#: RFC 3986, section 3.1.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")

#: Services that store objects, by the scheme of their URIs, with what a URI names first. Hadoop's
#: name for the same place is taken too.
_SERVICES: Final = {"s3": "bucket", "s3a": "bucket", "gs": "bucket", "az": "container"}
_SAME_SERVICE: Final = {"s3a": "s3"}

#: The names of buckets are stricter, but not alike everywhere.
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]+")

#: delta-rs takes a backslash for a slash, and refuses control characters.
_UNUSABLE: Final = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """A warehouse in a directory of this machine.

    Attributes:
        path: Absolute, with single slashes and no `..`: so all who read it, Hadoop's paths
            included, mean the same directory.
    """

    path: str

    @property
    def uri(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class CloudPrefix:
    """A warehouse in an object storage service.

    Attributes:
        uri: `s3://bucket/prefix`, `gs://...` or `az://...`, without a slash at its end.
        settings: How the service is reached. Not part of what the place is called.
    """

    uri: str
    settings: StoreSettings = field(default=StoreSettings(), compare=False)


#: Where a warehouse lies, as functions take it that open one: as users write it, or parsed.
Place = str | os.PathLike[str] | LocalDirectory | CloudPrefix


def parse_warehouse(
    uri: Place, setting: str = "warehouse", settings: StoreSettings | None = None
) -> LocalDirectory | CloudPrefix:
    """Where a warehouse lies. Touches nothing but what a `..` goes through.

    Args:
        uri: A local path, taken literally: `%20` or `#` is part of a name. Or a `file:` URI with an
            absolute path, in which such characters are escaped. Or `s3://bucket/prefix` (also
            `s3a:`, as Hadoop has it), `gs://bucket/prefix` or `az://container/prefix`, whose prefix
            is taken literally. What was parsed before stays as it is.
        setting: What the value is called, for messages.
        settings: How a service is reached; a directory has no use for them. None: as its own tools
            reach it.

    Raises:
        InvalidConfigError: It has another scheme, begins with `~/`, or has characters that not all
            readers of the tables take.
    """
    if isinstance(uri, LocalDirectory | CloudPrefix):
        return uri
    text = os.fspath(uri)
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() in _SERVICES:
        url = _cloud_url(text, scheme[1].lower(), text[scheme.end() :], setting)
        return CloudPrefix(url, settings or StoreSettings())
    return _local_directory(text, scheme, setting)


def parse_local_directory(uri: Place, setting: str) -> LocalDirectory:
    """As `parse_warehouse`, for what has to be on this machine.

    Raises:
        InvalidConfigError: As `parse_warehouse`, or it is somewhere else.
    """
    place = parse_warehouse(uri, setting)
    if isinstance(place, CloudPrefix):
        raise _invalid(place.uri, setting, "is not on this machine; give a local directory")
    return place


def _local_directory(text: str, scheme: re.Match[str] | None, setting: str) -> LocalDirectory:
    if scheme is None:
        path = text
        if path == "~" or path.startswith("~/"):
            # Gateways, jobs and executors may run as several users.
            raise _invalid(
                text,
                setting,
                "begins with '~', which shells replace by a home directory and nothing else does: "
                f"write the path out, or ./{text} for a directory of that name",
            )
    elif scheme[1].lower() == "file":
        path = _file_path(text, text[scheme.end() :], setting)
    else:
        raise _invalid(
            text,
            setting,
            f"is in a store that is not supported ({scheme[1].lower()}:); give a local path, a "
            "file: URI, or one of s3://bucket/prefix, gs://bucket/prefix, az://container/prefix. "
            f"A directory of that name is ./{text}",
        )
    if not path:
        raise _invalid(text, setting, "names no directory; give a local path or a file: URI")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise _invalid(ascii(text), setting, "is not UTF-8; rename the directory") from error
    if _UNUSABLE.search(path):
        raise _invalid(
            ascii(text),
            setting,
            "has a backslash or a control character, which not every reader of the tables takes; "
            "rename the directory",
        )
    path = os.path.join(os.getcwd(), path)
    if ".." in path.split("/"):
        path = os.path.realpath(path)
    # Two slashes in front have a meaning of their own, to Hadoop too.
    return LocalDirectory("/" + os.path.normpath(path).lstrip("/"))


def open_warehouse(
    uri: Place,
    *,
    create: bool = False,
    what: str = "warehouse",
    cache: DiskCache | None = None,
) -> Warehouse:
    """The store of the warehouse at `uri`: for gateways, jobs, the command line and Spark alike.

    Args:
        uri: As for `parse_warehouse`.
        create: Make the warehouse when it is not there; a reader does not.
        what: What it is, for messages.
        cache: For parts of data files, where the warehouse is in an object storage service; closed
            with the store.

    Raises:
        InvalidConfigError: As `parse_warehouse`. Nothing was made.
        StoreUnavailableError: There is none, or it cannot be made or opened.
    """
    place = parse_warehouse(uri, what)
    if isinstance(place, CloudPrefix):
        return _open_cloud(place, what, create=create, cache=cache)
    try:
        return LocalStore(place.path, create=create)
    except NotFound as error:
        said = f"there is no {what} at {place.path}"
        if create:
            said = f"the {what} {place.path} cannot be created: {error}"
        elif not isinstance(error.__cause__, FileNotFoundError):
            said += f": {error}"
        raise StoreUnavailableError(said, path=place.path) from error


def _open_cloud(
    place: CloudPrefix, what: str, *, create: bool, cache: DiskCache | None
) -> CloudStore:
    url = place.uri
    store = CloudStore(url, settings=place.settings, cache=cache)
    try:
        # There are no directories: a warehouse is there when something is in it.
        if not create and not store.list_directories("") and not store.list_files(""):
            raise StoreUnavailableError(
                f"there is no {what} at {url}: nothing is stored there", path=url
            )
    except BaseException:
        store.close()
        raise
    return store


def _cloud_url(text: str, scheme: str, rest: str, setting: str) -> str:
    what = _SERVICES[scheme]
    form = f"{scheme}://{what}/prefix"
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not _BUCKET.fullmatch(bucket):
        raise _invalid(text, setting, f"names no {what}; write {form}")
    parts = prefix.rstrip("/").split("/")
    if prefix.strip("/") and any(part in ("", ".", "..") for part in parts):
        raise _invalid(text, setting, "has an empty part, '.' or '..' in its prefix; leave it out")
    if not prefix.isprintable() or any(sign in prefix for sign in "\\?#%"):
        raise _invalid(
            ascii(text),
            setting,
            "has a backslash, '?', '#', '%' or a control character, which not every reader of the "
            "tables takes; use another prefix",
        )
    return f"{_SAME_SERVICE.get(scheme, scheme)}://{bucket}/{prefix}".rstrip("/")


def _file_path(text: str, rest: str, setting: str) -> str:
    """The path of a `file:` URI: `file:/d`, `file:///d` or `file://localhost/d`."""
    if "?" in rest or "#" in rest:
        raise _invalid(
            text, setting, "has a '?' or '#', which ends the path of a URI; write %3F or %23"
        )
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = slash + path
    if host.lower() not in ("", "localhost"):
        raise _invalid(
            text, setting, f"is on another machine, {host}; for this one write file:///<path>"
        )
    if not path.startswith("/"):
        raise _invalid(text, setting, "has no absolute path; write file:///<path>, or a plain path")
    return unquote(path, errors="surrogateescape")


def _invalid(text: str, setting: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(f"{setting} {text!r} {why}", name=setting, value=text)
