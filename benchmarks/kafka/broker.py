"""A Kafka broker on loopback, from Maven's artifacts, while a block lasts.

Its jars are fetched once, into `.cache/kafka` of the checkout, by the `pom.xml` beside this file.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.kafka.server_process import ServerProcess

_HERE: Final = Path(__file__).resolve().parent
JARS: Final = _HERE.parents[1] / ".cache" / "kafka"
POM: Final = _HERE / "pom.xml"

#: The first of these lines of Maven has the reason, the last ones say where to read about Maven.
_REASON: Final = re.compile(r"\[ERROR\] (\S.*)")

_FETCH_S: Final = 600.0
_START_S: Final = 60.0

#: As much as Kafka's own start script gives a broker.
_HEAP: Final = "1g"

_PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
"""


class Broker(ServerProcess):
    """Starts a broker of its own, with new data.

    Args:
        directory: Where its data are; None: a temporary one. Removed at the end.
        settings: More lines of `server.properties`.

    Raises:
        RuntimeError: It cannot be fetched, or does not start; the message has its log.
    """

    def __init__(
        self, directory: Path | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__("Kafka", directory)
        self._settings = dict(settings or {})
        self._port = 0

    def data_bytes(self, topic: str) -> int:
        """What the segments of a topic take on the disk; their indexes are not counted."""
        segments = (self._directory / "data").glob(f"{topic}-*/*.log")
        return sum(path.stat().st_size for path in segments)

    def _prepare(self) -> list[str]:
        if shutil.which("java") is None:
            raise RuntimeError(
                "Kafka needs Java 17 or newer: there is no `java` in PATH; install one"
                " (apt-get install openjdk-17-jre-headless)"
            )
        fetch_jars()
        self._port, controller_port = _free_ports(2)
        properties = self._directory / "server.properties"
        text = _PROPERTIES.format(
            port=self._port, controller_port=controller_port, directory=self._directory
        )
        properties.write_text(
            text + "".join(f"{name}={value}\n" for name, value in self._settings.items())
        )
        identity = _java("kafka.tools.StorageTool", "random-uuid").strip()
        _java(
            "kafka.tools.StorageTool",
            *("format", "-t", identity, "-c", str(properties), "--standalone"),
        )
        return [*_command(f"-Xmx{_HEAP}", f"-Xms{_HEAP}"), "kafka.Kafka", str(properties)]

    def _wait_for_address(self, process: subprocess.Popen[bytes]) -> str:
        ends_at = time.monotonic() + _START_S
        while time.monotonic() < ends_at and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                time.sleep(0.2)
            else:
                return f"127.0.0.1:{self._port}"
        return ""


def fetch_jars() -> None:
    """Fetches what a broker needs, unless it is there.

    Raises:
        RuntimeError: Maven failed, or is not installed.
    """
    if any(JARS.glob("kafka_2.13-*.jar")):
        return
    if shutil.which("mvn") is None:
        raise RuntimeError("Maven fetches the broker: install it (apt-get install maven)")
    JARS.parent.mkdir(parents=True, exist_ok=True)
    # Under their name when all are there: Maven, interrupted, leaves some of them.
    with tempfile.TemporaryDirectory(prefix="kafka-", dir=JARS.parent) as folder:
        fetched = Path(folder) / "jars"
        done = subprocess.run(
            [
                *("mvn", "--quiet", "--batch-mode", "--file", str(POM)),
                *("dependency:copy-dependencies", f"-DoutputDirectory={fetched}"),
            ],
            capture_output=True,
            text=True,
            timeout=_FETCH_S,
            check=False,
        )
        if done.returncode:
            reason = _REASON.search(done.stdout)
            raise RuntimeError(
                "Maven could not fetch the broker:"
                f" {reason[1] if reason else done.stdout[-1000:] + done.stderr[-1000:]}; see what"
                f" `mvn --file {POM} dependency:resolve` says"
            )
        shutil.rmtree(JARS, ignore_errors=True)  # without the broker's own jar
        fetched.replace(JARS)


def kafka_version() -> str:
    """Of the jars."""
    (jar,) = JARS.glob("kafka_2.13-*.jar")
    return jar.stem.partition("-")[2]


def _command(*options: str) -> list[str]:
    return ["java", *options, "-cp", f"{JARS}/*"]


def _java(*arguments: str) -> str:
    done = subprocess.run(
        [*_command(), *arguments], capture_output=True, text=True, timeout=_START_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _free_ports(count: int) -> list[int]:
    """Ports that are free at this moment; all are held until all are known."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
