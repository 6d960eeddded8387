"""A group that has committed offsets of a hundred thousand partitions, or of a fifth of that unless
MAINSTEM_TEST_FAULTS=full."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.length import FULL

from mainstem.cli.root import cli
from mainstem.client import AdminClient, ConsumerGroupDescription, TopicPartition
from mainstem.limits import PARTITION_COUNT_MAX
from mainstem.testing import GatewayProcess

pytestmark = [pytest.mark.end_to_end, pytest.mark.fault, pytest.mark.slow]

TOPICS = [f"orders.{number}" for number in range(10 if FULL else 2)]


def offsets(number: int) -> list[TopicPartition]:
    """Their start, in one table commit after the other: the partitions have no records."""
    return [
        TopicPartition(topic, partition, 0, f"{number}")
        for topic in TOPICS
        for partition in range(PARTITION_COUNT_MAX)
    ]


def test_its_offsets_are_stored_read_kept_over_a_restart_and_deleted(tmp_path: Path) -> None:
    with (
        GatewayProcess(tmp_path / "warehouse") as gateway,
        AdminClient({"bootstrap.servers": gateway.address}) as admin,
    ):
        for topic in TOPICS:
            admin.create_topic(topic, PARTITION_COUNT_MAX)
        # Often enough that most rows are superseded, and the table rewrites itself.
        wanted = offsets(0)
        for number in range(3):
            wanted = offsets(number)
            assert admin.alter_consumer_group_offsets("g", wanted) == dict.fromkeys(wanted)
        stored = admin.list_consumer_group_offsets("g")
        assert {tp: one.metadata for tp, one in stored.items()} == dict.fromkeys(wanted, "2")
        described = admin.describe_consumer_groups(["g"])["g"]
        assert isinstance(described, ConsumerGroupDescription)
        assert len(described.offsets) == len(wanted)

        gateway.kill()
        gateway.start()
        assert admin.list_consumer_group_offsets("g") == stored

        def run(*arguments: str) -> str:
            result = CliRunner().invoke(
                cli, ["group", *arguments, "--bootstrap-servers", gateway.address]
            )
            assert result.exit_code == 0, result.output
            return result.output

        run("seek", "g", "--to", "start", "--no-confirm")
        assert admin.list_consumer_group_offsets("g") == stored, "they are there already"
        run("offset-delete", "g", "--topics", ",".join(TOPICS[1:]), "--no-confirm")
        assert len(admin.list_consumer_group_offsets("g")) == PARTITION_COUNT_MAX
        run("delete", "g", "--no-confirm")
        assert admin.list_consumer_groups() == ()
