"""Programs that were written for other clients run with only their import changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from mainstem.client import AdminClient
from mainstem.compat import confluent
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end]

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("compat") / "warehouse") as process:
        yield process


@pytest.fixture
def topic(gateway: GatewayProcess, request: pytest.FixtureRequest) -> str:
    """A new topic of three partitions."""
    name = str(request.node.name)[:200]
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic(name, 3)
    return name


def run(repo_root: Path, program: str, *arguments: str, text: str = "") -> list[str]:
    """Runs one of the examples; returns the lines that it printed."""
    answer = subprocess.run(
        [sys.executable, f"examples/{program}", *arguments],
        cwd=repo_root,
        env=dict(os.environ),
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout.splitlines()


def test_confluents_producer_and_consumer_move_each_message_once_and_rewind(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    lines = "".join(f"line {number}\n" for number in range(500))
    program = "from_confluent_kafka/producer.py"
    told = run(repo_root, program, gateway.address, topic, text=lines)
    assert len(told) == 500
    assert all(line.startswith(f"{topic} [") for line in told)
    program = "from_confluent_kafka/consumer.py"
    read = run(repo_root, program, gateway.address, topic, topic)
    assert sorted(read) == sorted(f"b'{n}' b'line {n}'" for n in range(500))
    assert run(repo_root, program, gateway.address, topic, topic) == []
    assert sorted(run(repo_root, program, gateway.address, topic, topic, "--rewind")) == sorted(
        read
    )


def test_confluents_administration_makes_changes_and_describes_a_topic(
    gateway: GatewayProcess, repo_root: Path
) -> None:
    program = "from_confluent_kafka/admin.py"
    told = run(repo_root, program, gateway.address, "made-by-admin")
    assert told[:3] == [
        "created made-by-admin",
        "retention.ms is 3600000",
        "made-by-admin has 4 partitions",
    ]


def test_aiokafkas_producer_and_consumer_move_each_record_once(
    gateway: GatewayProcess, topic: str, repo_root: Path
) -> None:
    told = run(repo_root, "from_aiokafka/producer.py", gateway.address, topic, "200")
    assert told[0].startswith(f"{topic} [")
    assert told[1:] == ["200 records", "10 more in partition 2"]
    program = "from_aiokafka/consumer.py"
    read = run(repo_root, program, gateway.address, topic, topic, "210")
    assert sorted(read) == sorted([*(f"{n} {n}" for n in range(200)), *["batch -1"] * 10])


def test_the_programs_of_the_guide_run_as_they_are_written(
    gateway: GatewayProcess, repo_root: Path, tmp_path: Path
) -> None:
    with AdminClient({"bootstrap.servers": gateway.address}) as admin:
        admin.create_topic("orders", 3)
    guide = (repo_root / "docs/guides/coming-from-kafka.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(programs) == 3
    for number, program in enumerate(programs):
        path = tmp_path / f"{number}.py"
        path.write_text(program.replace("127.0.0.1:9490", gateway.address))
        answer = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert len(answer.stdout.splitlines()) == 10


def partitions_of(
    future: Future[confluent.ConsumerGroupTopicPartitions],
) -> list[confluent.TopicPartition]:
    found = future.result(TIMEOUT_S).topic_partitions
    assert found is not None
    return found


def test_groups_are_listed_described_moved_and_deleted_as_with_confluent(
    gateway: GatewayProcess, topic: str
) -> None:
    config = {"bootstrap.servers": gateway.address}
    with confluent.Producer(config) as producer:
        for number in range(4):
            producer.produce(topic, b"%d" % number, partition=0)
    group = f"{topic}-group"
    reading = {**config, "group.id": group, "auto.offset.reset": "earliest"}
    admin = confluent.AdminClient(config)
    place = confluent.TopicPartition(topic, 0, 1)
    with confluent.Consumer({**reading, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        assert len(consumer.consume(4, TIMEOUT_S)) == 4
        consumer.commit(asynchronous=False)
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert described.state is confluent.ConsumerGroupState.STABLE
        (member,) = described.members
        assert member.member_id == consumer.memberid()
        assert len(member.assignment.topic_partitions) == 3
        (listed,) = admin.list_groups(group, timeout=TIMEOUT_S)
        assert (listed.id, [one.id for one in listed.members]) == (group, [member.member_id])
        moves = [confluent.ConsumerGroupTopicPartitions(group, [place])]
        refused = admin.alter_consumer_group_offsets(moves)[group]
        with pytest.raises(confluent.KafkaException) as caught:
            refused.result(TIMEOUT_S)
        assert caught.value.args[0] == confluent.KafkaError.NON_EMPTY_GROUP
        nowhere = confluent.TopicPartition("nowhere", 0)
        one, missing = consumer.committed([place, nowhere], TIMEOUT_S)
        assert (one.offset, one.error) == (4, None)
        assert missing.error == confluent.KafkaError.UNKNOWN_TOPIC_OR_PART
    asked = [confluent.ConsumerGroupTopicPartitions(group, [place])]
    (found,) = partitions_of(admin.list_consumer_group_offsets(asked)[group])
    assert found.offset == 4
    (moved,) = partitions_of(admin.alter_consumer_group_offsets(moves)[group])
    assert (moved.offset, moved.error) == (1, None)
    empty = confluent.ConsumerGroupState.EMPTY
    valid = admin.list_consumer_groups(states={empty}).result(TIMEOUT_S).valid
    assert group in {one.group_id for one in valid}
    specs = {place: confluent.OffsetSpec.latest()}
    assert admin.list_offsets(specs)[place].result(TIMEOUT_S).offset == 4
    cut = confluent.TopicPartition(topic, 0, 2)
    assert admin.delete_records([cut])[cut].result(TIMEOUT_S).low_watermark == 2
    assert admin.delete_consumer_groups([group])[group].result(TIMEOUT_S) is None
    assert admin.list_groups(group) == []
