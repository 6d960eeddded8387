"""versitygw, an S3 server on files: for tests, benchmarks, and by hand as `make s3`.

It is a program in Go, which `make s3` installs where it is missing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.s3_server import S3Server, free_port, wait_for

PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

_KEY: Final = "mainstem"
_SECRET: Final = "mainstem-secret"
_REGION: Final = "us-east-1"
_BUCKET: Final = "lake"


def find_versitygw() -> str | None:
    """The program, in PATH or where Go installs programs; None: it is not installed."""
    home = os.environ.get("GOBIN") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin"
    return shutil.which("versitygw") or shutil.which("versitygw", path=str(home))


class Versitygw(S3Server):
    """A server on this machine, whose buckets are directories.

    Args:
        buckets: The directory that has them.
    """

    def __init__(self, port: int, buckets: Path) -> None:
        super().__init__(port)
        self._buckets = buckets

    @property
    def options(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET}
        return {**super().options, **keys, "AWS_REGION": _REGION}

    def make_bucket(self, name: str = "") -> str:
        import boto3  # type: ignore[import-untyped]

        name = name or f"bucket-{os.urandom(6).hex()}"
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_SECRET,
            region_name=_REGION,
        )
        with (
            contextlib.closing(client),
            contextlib.suppress(
                client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou
            ),
        ):
            client.create_bucket(Bucket=name)
        return name


@contextlib.contextmanager
def running_versitygw(directory: Path, port: int = 0) -> Iterator[Versitygw]:
    """Starts a server, and ends it.

    Args:
        directory: Where its files are, and stay.
        port: 0: a free one.
    """
    program = find_versitygw()
    assert program is not None, f"go install {PACKAGE}"
    buckets, attributes = directory / "buckets", directory / "attributes"
    for one in (buckets, attributes):
        one.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    words = ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(attributes), str(buckets)]
    process = subprocess.Popen(
        [program, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET},
    )
    try:
        wait_for(process, port)
        yield Versitygw(port, buckets)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> int:
    """Serves until Ctrl-C, in a directory of its own, which stays for the next time."""
    if find_versitygw() is None:
        print(f"versitygw is not installed: go install {PACKAGE}", file=sys.stderr)
        return 1
    directory = Path(os.environ.get("S3_DIRECTORY") or Path(tempfile.gettempdir()) / "mainstem-s3")
    port = int(os.environ.get("S3_PORT") or 7070)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with running_versitygw(directory, port) as server:
            server.make_bucket(_BUCKET)
            print(f"# an S3 server with the bucket {_BUCKET}, in {directory}; Ctrl-C ends it")
            for name, value in server.options.items():
                print(f"export {name}={value}")
            print(f"# then, for example: make demo WAREHOUSE=s3://{_BUCKET}/demo", flush=True)
            stop.wait()
    except RuntimeError as error:
        print(f"{error}: is 127.0.0.1:{port} taken? Name another: S3_PORT=7071", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
