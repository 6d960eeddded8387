"""Every command that asks a gateway, against one that asks who calls and what they may do: by who
may do everything, by who may do nothing, and by who has not signed in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.certificates import write_certificates

from mainstem.cli.root import cli
from mainstem.testing import GatewayProcess

pytestmark = pytest.mark.end_to_end

ADMIN, EVE = "admin", "eve"
PASSWORD = "correct horse-battery"

#: The commands, in an order in which each has what it needs, and what they read from stdin.
ASKING: tuple[tuple[str, str], ...] = (
    ("topic create t -p 2", ""),
    ("topic create gone", ""),
    ("topic list", ""),
    ("topic describe t", ""),
    ("topic alter-config t --set retention.ms=7d", ""),
    ("topic add-partitions t -n 3", ""),
    ("topic produce t", "a record\n"),
    ("topic consume t -e", ""),
    ("topic consume t -e -g readers", ""),
    ("topic trim-prefix t --to 0 -y", ""),
    ("topic delete gone -y", ""),
    ("topic create t.dlt", ""),
    ("topic redrive t.dlt --dry-run", ""),
    ("group list", ""),
    ("group describe readers", ""),
    ("group seek readers --to start -y", ""),
    ("group offset-delete readers --topics t -y", ""),
    ("group seek readers --to start --topics t -y", ""),
    ("group delete readers -y", ""),
    ("cluster describe", ""),
    ("cluster info", ""),
    ("cluster rebalance --dry-run", ""),
    ("cluster transactions list", ""),
    ("gateway status", ""),
    ("gateway connections list", ""),
    ("user create bob --password-file {password}", ""),
    ("user list", ""),
    ("user passwd bob --password-file {password}", ""),
    ("user delete bob -y", ""),
    ("acl create --allow-principal User:bob --operation read --topic t", ""),
    ("acl list", ""),
    ("acl check --principal User:bob --operation read --topic t", ""),
    ("acl delete --principal User:bob --topic t -y", ""),
    ("quota set --user bob --request-rate 1000", ""),
    ("quota list", ""),
    ("quota remove --user bob", ""),
    ("bench produce --records 2000", ""),
    ("bench consume --records 2000 --call poll", ""),
    ("bench end-to-end --rate 100 --seconds 0.5 --warm-up 0.1", ""),
)

#: What lists leaves out what the caller may not see.
LISTING = frozenset(("topic list", "group list", "cluster transactions list"))

#: Of one transaction: what each may do with it is in `test_access_matrix.py`.
OF_A_TRANSACTION = frozenset(
    f"cluster transactions {word}" for word in ("abort", "complete", "describe")
)

#: gRPC's health service answers everybody.
OPEN = frozenset(("cluster health",))

#: Read or write files, or start what they need themselves.
WITHOUT_A_GATEWAY = frozenset(
    """cert dev; cluster audit; cluster verify; config list; config show; demo; gateway run;
    job history; job list; job pause; job resume; job run; job scheduler; job status; pipeline init;
    pipeline run; pipeline status; profile create; profile delete; profile list; profile use; sql;
    store check; topic backup; topic restore; version""".replace("\n    ", " ").split("; ")
)


class Secured:
    """A gateway with TLS, users and rules."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.password_file = directory / "password"
        self.password_file.write_text(PASSWORD + "\n")
        write_certificates(directory)
        for user in (ADMIN, EVE):
            made = CliRunner().invoke(
                cli,
                ["user", "create", user, "--warehouse", str(self.warehouse)],
                env={"MAINSTEM_USER_PASSWORD": PASSWORD},
            )
            assert made.exit_code == 0, made.output
        self.address = ""

    @property
    def warehouse(self) -> Path:
        return self._directory / "warehouse"

    def settings(self) -> dict[str, object]:
        return {
            "ssl.certificate.location": self._directory / "gateway.pem",
            "ssl.key.location": self._directory / "gateway.key",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "authorizer": "acl",
            "super.users": f"User:{ADMIN}",
        }

    def run(self, user: str, line: str, stdin: str = "") -> Result:
        """A command of a user; of an empty one, who does not sign in."""
        options = [f"-Xssl.ca.location={self._directory / 'ca.pem'}"]
        if user:
            options += ["-Xsecurity.protocol=sasl_ssl", "-Xsasl.mechanism=SCRAM-SHA-512"]
            options += [f"-Xsasl.username={user}"]
        else:
            options += ["-Xsecurity.protocol=ssl"]
        words = line.format(password=self.password_file).split()
        return CliRunner().invoke(
            cli,
            ["--timeout", "20", *options, *words, "-b", self.address],
            input=stdin,
            env={"MAINSTEM_SASL_PASSWORD": PASSWORD} if user else {},
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with GatewayProcess(made.warehouse, settings=made.settings()) as process:
        made.address = process.address
        yield made


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that does something, by its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield " ".join(path)


def test_every_command_is_tried_or_asks_no_gateway() -> None:
    tried = {
        name for name in commands(cli) for line, _ in ASKING if f"{line} ".startswith(f"{name} ")
    }
    others = WITHOUT_A_GATEWAY | OF_A_TRANSACTION | OPEN
    assert not tried & others
    assert tried | others == set(commands(cli))


@pytest.mark.timeout(240)
def test_who_may_do_nothing_is_refused_by_each_command_and_who_may_do_everything_by_none(
    secured: Secured,
) -> None:
    wrong: list[tuple[str, str, str]] = []
    for line, stdin in ASKING:
        for user, refusal in (("", "SASL_AUTHENTICATION_FAILED"), (EVE, "AUTHORIZATION_FAILED")):
            refused = secured.run(user, line, stdin)
            hidden = user == EVE and line in LISTING
            as_it_should = (
                refused.exit_code == 0 and len(refused.stdout.splitlines()) <= 1  # the heading
                if hidden
                else refused.exit_code != 0 and refusal in refused.output
            )
            if not as_it_should:
                wrong.append((user, line, refused.output))
        done = secured.run(ADMIN, line, stdin)
        if done.exit_code != 0:
            wrong.append((ADMIN, line, done.output))
    assert not wrong, "\n".join(map(str, wrong))


def test_health_is_for_everybody_who_reaches_the_gateway(secured: Secured) -> None:
    assert secured.run(ADMIN, "cluster health").exit_code == 0
