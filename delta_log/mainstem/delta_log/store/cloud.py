"""A warehouse in an object storage service: Amazon S3 and what speaks its language, Google Cloud
Storage, Azure Blob Storage.

`put_if_absent` is a put with the condition that there is no such object (`If-None-Match: *` on
S3). It is sent once: a service that did it and failed to say so would refuse the second with "there
is one", and that one would be ours. Whoever called it reads the object back. All else can be done
twice, and is, with growing pauses, by obstore.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn
from urllib.parse import quote

import pyarrow as pa

from mainstem.config import StoreSettings
from mainstem.delta_log.store.cached_parts import CachedParts
from mainstem.delta_log.store.cloud_access import CloudAccess, cloud_access
from mainstem.delta_log.store.cloud_errors import CloudFailure, Meaning, cloud_failure
from mainstem.delta_log.store.cloud_file import CloudFile
from mainstem.delta_log.store.cloud_reader import CloudReader, ObjectEnd
from mainstem.delta_log.store.disk_cache import DiskCache
from mainstem.delta_log.store.object_store import (
    AlreadyExists,
    NotFound,
    ObjectInfo,
    PutOutcomeUnknown,
)
from mainstem.delta_log.store.store_check import check_put_if_absent
from mainstem.errors import StoreUnavailableError
from mainstem.limits import KIB, MIB

#: A call that can be repeated is given up after so many requests or so long. Then its caller,
#: which has a deadline of its own, decides.
_RETRIES_MAX: Final = 6
_RETRY_TIMEOUT: Final = timedelta(seconds=20)

#: An object up to this size is one request to open and read: a commit's small data file is.
_TAIL_BYTES: Final = 256 * KIB

#: Larger objects are sent in parts, several at a time. One request can have 5 GB on S3.
_PARTS_FROM_BYTES: Final = 64 * MIB
_PART_BYTES: Final = 16 * MIB

#: How often the start of a gateway tries conditional puts whose answers are lost.
_CHECKS_MAX: Final = 4


class CloudStore:
    """The objects of a bucket whose names begin with a prefix.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; the prefix is
            taken as it is.
        options: What is to be used instead of all else, by the names of environment variables in
            lower case: `aws_endpoint_url`, for example.
        settings: How it is reached, and with which credentials. What they leave out is taken from
            where the provider's own tools have it: environment variables (`AWS_ACCESS_KEY_ID`,
            `AWS_REGION`, `AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`,
            `AZURE_STORAGE_ACCOUNT_NAME`, ...), a profile in `~/.aws`, or the role of the machine.
        cache: Keeps parts of data files; closed with the store.

    Raises:
        InvalidConfigError: There is no such profile, or the settings are for another service.
        StoreUnavailableError: What is needed to reach it is not installed or not set.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, str] | None = None,
        settings: StoreSettings | None = None,
        cache: DiskCache | None = None,
    ) -> None:
        self._uri = url.rstrip("/")
        self._access = cloud_access(self._uri, settings or StoreSettings(), options)
        self._lock = threading.Lock()
        self._failures: Counter[str] = Counter()
        self._obstore = _obstore(self._uri)
        self._cache = cache
        self._parts = CachedParts(cache, self._uri)
        self._reader = CloudReader(lambda path: self._parts.end(path, lambda: self._read_end(path)))
        #: One that tries again, and one that does not; None: closed.
        self._clients: tuple[Any, Any] | None = (
            _client(self._obstore, self._uri, self._access, _RETRIES_MAX),
            _client(self._obstore, self._uri, self._access, 0),
        )

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        return self._access.storage_options()

    @property
    def wal_directory(self) -> None:
        return None

    @property
    def is_far(self) -> bool:
        return True

    @property
    def failures(self) -> Mapping[str, int]:
        return dict(self._failures)

    def free_bytes(self) -> None:
        return None

    def read(self, path: str) -> bytes:
        with self._calling("read", path) as client:
            return bytes(self._obstore.get(client, path).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        assert start >= 0
        assert length >= 0
        with self._calling("read", path) as client:
            # No request asks for no bytes; whether there is such an object is to be said all the
            # same.
            try:
                data = self._obstore.get_range(client, path, start=start, length=max(length, 1))
            except Exception as error:
                if cloud_failure(error).meaning is Meaning.PAST_THE_END:
                    return b""
                raise
            return bytes(data)[:length]

    def open(self, path: str) -> pa.NativeFile:
        size, tail = self._reader.open(path)
        if size == len(tail):
            return pa.BufferReader(tail)
        return pa.PythonFile(
            CloudFile(
                size,
                tail,
                lambda start, length: self._read_open(path, start, length, size - len(tail)),
                self._reader,
            ),
            mode="r",
        )

    def will_open(self, paths: Iterable[str]) -> None:
        self._reader.will_open(paths)

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        content = memoryview(data).cast("B")  # Arrow's are of signed bytes
        self._reader.forget(path)
        with self._calling("write", path) as client:
            self._obstore.put(
                client,
                path,
                self._obstore.Bytes(content),
                use_multipart=len(content) > _PARTS_FROM_BYTES,
                chunk_size=_PART_BYTES,
            )

    def put_if_absent(self, path: str, data: bytes, *, frees_space: bool = False) -> None:
        _, once = self._open_clients()
        try:
            self._obstore.put(once, path, data, mode="create", use_multipart=False)
        except Exception as error:
            failure = cloud_failure(error)
            if failure.meaning is Meaning.EXISTS:
                raise AlreadyExists(path) from None
            if failure.meaning is not Meaning.UNKNOWN:
                self._raise("write", path, failure)
            self._count(failure)
            raise PutOutcomeUnknown(
                f"the put of {self._uri}/{path} may have been done: {failure.text}"
            ) from None

    def make_durable(self, path: str) -> None:
        with self._calling("read", path) as client:
            self._obstore.head(client, path)

    def list_files(self, directory: str, start_after: str = "") -> list[ObjectInfo]:
        prefix = f"{directory}/" if directory else ""
        with self._calling("list", directory) as client:
            found: list[Any] = []
            if start_after:
                for part in self._obstore.list(
                    client, prefix=directory or None, offset=f"{prefix}{start_after}"
                ):
                    found += part
            else:
                found += self._obstore.list_with_delimiter(client, directory or None)["objects"]
        files = (
            ObjectInfo(
                meta["path"][len(prefix) :],
                meta["size"],
                int(meta["last_modified"].timestamp() * 1000),
            )
            for meta in found
            if meta["path"].startswith(prefix)
        )
        return sorted(
            (info for info in files if info.name and "/" not in info.name),
            key=lambda info: info.name,
        )

    def list_directories(self, directory: str) -> list[str]:
        with self._calling("list", directory) as client:
            found = self._obstore.list_with_delimiter(client, directory or None)
        return sorted(prefix.rpartition("/")[2] for prefix in found["common_prefixes"])

    def delete(self, path: str) -> None:
        with contextlib.suppress(NotFound), self._calling("delete", path) as client:
            self._reader.forget(path)
            self._obstore.delete(client, path)

    def delete_all(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        try:
            with self._calling("delete", f"{paths[0]} and {len(paths) - 1} more") as client:
                for path in paths:
                    self._reader.forget(path)
                self._obstore.delete(client, list(paths))
        except NotFound:  # from a service that deletes one by one
            for path in paths:
                self.delete(path)

    def sweep(self, directory: str, not_after_ms: int) -> int:
        return 0  # an interrupted put leaves no object

    def close(self) -> None:
        self._clients = None
        self._reader.close()
        if self._cache is not None:
            self._cache.close()

    def fill_reserve(self) -> None:
        pass  # it does not fill up

    def self_check(self) -> None:
        for left in reversed(range(_CHECKS_MAX)):
            name = f".check-{uuid.uuid4().hex}"
            try:
                check_put_if_absent(
                    self,
                    name,
                    "a put on condition that there is no such object (If-None-Match: * on S3)",
                    "use a service with conditional puts",
                )
            except PutOutcomeUnknown as error:
                # A lost answer says nothing of the service, and comes now and then.
                if not left:
                    raise StoreUnavailableError(str(error), path=self._uri) from error
            else:
                return
            finally:
                with contextlib.suppress(StoreUnavailableError):
                    self.delete(name)

    # -- helpers ---------------------------------------------------------------------------------

    def _read_end(self, path: str) -> ObjectEnd:
        with self._calling("read", path) as client:
            return self._tail(client, path)

    def _tail(self, client: Any, path: str) -> tuple[int, bytes]:
        """The size of an object, and its last bytes."""
        try:
            got = self._obstore.get(client, path, options={"range": {"suffix": _TAIL_BYTES}})
            return got.meta["size"], bytes(got.bytes())
        except Exception as error:
            # One that was tried again and again is not asked for in another way as well.
            if cloud_failure(error).meaning in (Meaning.NOT_FOUND, Meaning.UNKNOWN):
                raise
        # Azure has no such ranges, and an empty object has no bytes at its end.
        size: int = self._obstore.head(client, path)["size"]
        length = min(size, _TAIL_BYTES)
        if not length:
            return 0, b""
        return size, bytes(
            self._obstore.get_range(client, path, start=size - length, length=length)
        )

    def _read_open(self, path: str, start: int, length: int, tail_start: int) -> bytes:
        """A range, before the tail, of an object that was there. Raises OSError, as files do."""

        def read(at: int, count: int) -> bytes:
            return self.read_range(path, at, count)

        try:
            return self._parts.range(path, start, length, read, tail_start)
        except NotFound as error:
            raise OSError(errno.ENOENT, str(error)) from None
        except StoreUnavailableError as error:
            raise OSError(errno.EIO, error.message) from None

    def _open_clients(self) -> tuple[Any, Any]:
        clients = self._clients
        if clients is None:
            raise StoreUnavailableError(
                f"the store {self._uri} is closed; nothing was done", path=self._uri
            )
        return clients

    @contextlib.contextmanager
    def _calling(self, what: str, path: str) -> Iterator[Any]:
        """The client for a call that can be repeated."""
        client, _ = self._open_clients()
        try:
            yield client
        except Exception as error:
            failure = cloud_failure(error)
            if failure.meaning is Meaning.NOT_FOUND:
                raise NotFound(f"there is no object {self._uri}/{path}") from None
            self._raise(what, path, failure)

    def _raise(self, what: str, path: str, failure: CloudFailure) -> NoReturn:
        self._count(failure)
        raise StoreUnavailableError(
            f"the store could not {what} {self._uri}/{path}: {failure.text}",
            path=f"{self._uri}/{path}",
            errno=failure.name,
        ) from None

    def _count(self, failure: CloudFailure) -> None:
        with self._lock:
            self._failures[failure.name] += 1


def _obstore(url: str) -> Any:
    """The package, which only those install who need it."""
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise StoreUnavailableError(
            f"a warehouse at {url} needs the package obstore: pip install 'mainstem[cloud]'",
            path=url,
        ) from error
    return obstore


def _client(obstore: Any, url: str, access: CloudAccess, retries: int) -> Any:
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    client_options: dict[str, Any] = {
        "timeout": access.request_timeout,
        "connect_timeout": access.connect_timeout,
    }
    if access.allow_http:
        client_options["allow_http"] = True  # also where delta-rs has to be told
    try:
        return obstore.store.from_url(
            f"{scheme}://{bucket}/{quote(prefix)}".rstrip("/"),
            config=access.obstore_config,
            client_options=client_options,
            retry_config={"max_retries": retries, "retry_timeout": _RETRY_TIMEOUT},
            credential_provider=access.credential_provider(),
        )
    except Exception as error:
        raise StoreUnavailableError(
            f"the store {url} cannot be opened: {cloud_failure(error).text}", path=url
        ) from None
