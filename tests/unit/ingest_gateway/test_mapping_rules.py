"""Rules that say whose a certificate is."""

from __future__ import annotations

import time

import pytest

from mainstem.errors import InvalidConfigError
from mainstem.ingest_gateway.security.mapping_rules import map_subject, parse_rules

SERVICE_USERS = r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L"

SLASHES_AND_COMMAS = (
    r"RULE:,RULE:,/,RULE:,\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,"
    "RULE:, DEFAULT, /DEFAULT/,DEFAULT"
)

FIVE = ", ".join(
    (
        SERVICE_USERS,
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        # The examples of Kafka's documentation.
        (FIVE, "CN=ServiceUser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
         "serviceuser"),
        (FIVE, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
         "adminuser@admin"),
        (FIVE, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (FIVE, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (FIVE, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        # A comma in a name is escaped, and one in a pattern is not.
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ,DC=cz",
         r"Tkac\, Adam"),
        # A slash is escaped in both parts.
        (r"RULE:^CN=(.*)\/(.*)$/$2\/$1/", "CN=host/alice", "alice/host"),
        # Every match is replaced, and only where the whole fits.
        (r"RULE:[^=]*(=|$)/<$1>/", "CN=a", None),
        (r"RULE:[A-Z]*=?[a-z]*/x/", "CN=a", "xx"),
        # Groups: named, the whole, with a digit behind, those that matched nothing, none such.
        (r"RULE:^CN=(?<who>[^,]*).*/${who}/", "CN=alice,O=x", "alice"),
        (r"RULE:^CN=([^,]*)/$0!/", "CN=alice", "CN=alice!"),
        (r"RULE:^CN=([^,]*)/$12/", "CN=alice", "alice2"),
        (r"RULE:^CN=([^,]*)(,.*)?/$1$2/", "CN=alice", "alice"),
        (r"RULE:^CN=([^,]*)/$1@$4/", "CN=alice", "alice@$4"),
        (r"RULE:^CN=([^,]*)/\$1/", "CN=alice", "$1"),
        (r"RULE:^(?<=)CN=(.*)(?<!x)$/$1/", "CN=alice", "alice"),
        # Letters are those of ASCII in a pattern, as Java's are, and of all scripts in L and U.
        (r"RULE:^CN=(\w*)$/$1/", "CN=Zoë", None),
        (r"RULE:^CN=(.*)$/$1/U", "CN=zoë", "ZOË"),
        ("RULE:^CN=x$/y/", "CN=alice", None),
        ("DEFAULT", "CN=alice", "CN=alice"),
    ],
)  # fmt: skip
def test_the_first_rule_that_fits_names_the_owner_as_kafkas_do(
    rules: str, subject: str, name: str | None
) -> None:
    assert map_subject(parse_rules(rules), subject) == name


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("  RULE:// ,  DEFAULT  ", ["RULE://", "DEFAULT"]),
        (",,RULE://,,,DEFAULT,,", ["RULE://", "DEFAULT"]),
        ("  RULE:  /     /U   ,DEFAULT  ", ["RULE:  /     /U", "DEFAULT"]),
        (
            r"RULE:\**\/+/*/L,RULE:\/*\**/**/",
            [r"RULE:\**\/+/*/L", r"RULE:\/*\**/**/"],
        ),
        (
            SLASHES_AND_COMMAS,
            [
                r"RULE:,RULE:,/,RULE:,\//U",
                "RULE:,/RULE:,/",
                "RULE:,RULE:,/L,RULE:,/L",
                "RULE:, DEFAULT, /DEFAULT/",
                "DEFAULT",
            ],
        ),
    ],
)
def test_commas_end_a_rule_only_behind_its_last_slash(text: str, rules: list[str]) -> None:
    assert [rule.text for rule in parse_rules(text)] == rules


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("default", "default"),
        ("DEFAUL", "DEFAUL"),
        ("DEFAULT/L", "DEFAULT/L"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "RULE:CN=(.*?),OU=ServiceUsers.*/$1"),
        ("rule:^CN=(.*?)$/$1/", "rule:"),
        ("RULE:^CN=(.*?)$/$1/L/U", "RULE:^CN=(.*?)$/$1/L/U"),
        ("RULE:^CN=(.*?)$/LU", "RULE:^CN=(.*?)$/LU"),
        ("DEFAULT, RULE:^CN=($/$1/", "RULE:^CN=($/$1/"),
        ("RULE:^CN=.*$/$1/", "no group"),
        ("RULE:^CN=(.*)$/${who}/", "no group 'who'"),
        ("RULE:^CN=(.*)$/$x/", "what the first group has matched"),
        (r"RULE:\p{Alpha}/$0/", "no regular expression"),
        ("", "no rule"),
        (", ,", "no rule"),
    ],
)
def test_a_rule_that_is_malformed_is_named(text: str, named: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_rules(text)
    assert named in caught.value.message
    assert caught.value.facts["name"] == "ssl.principal.mapping.rules"


def test_many_malformed_characters_are_refused_in_no_time() -> None:
    began = time.monotonic()
    for text in ("RULE:" + "\\" * 20_000, "RULE:" + "a" * 50_000, "," * 50_000 + "x"):
        with pytest.raises(InvalidConfigError):
            parse_rules(text)
    assert time.monotonic() - began < 1.0
