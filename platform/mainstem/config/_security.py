"""The settings of a gateway that say who may connect, and what they may do."""

from __future__ import annotations

from typing import Final

from mainstem.config._keys import ConfigKey, keys_by_name

SECURITY_KEYS: Final[dict[str, ConfigKey]] = keys_by_name(
    (
        ConfigKey(
            "sasl.enabled.mechanisms",
            "list",
            "",
            "How clients may prove who they are, with commas between: SCRAM-SHA-256, "
            "SCRAM-SHA-512 (users: `mainstem user`), OAUTHBEARER (tokens of an OpenID provider). "
            "They need ssl.certificate.location. Empty: nobody is asked, but by ssl.client.auth. "
            "Kafka: sasl.enabled.mechanisms.",
            choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        ),
        ConfigKey(
            "gateway.secret",
            "str",
            "",
            "At least 32 characters that nobody can guess, the same for all gateways of a "
            "warehouse: they sign sessions, and the calls between gateways. Empty: made up at the "
            "start, for a gateway that is alone; who has signed in does so again after a restart.",
            secret=True,
        ),
        ConfigKey(
            "connections.max.reauth.ms",
            "int",
            3_600_000,
            "A client that has signed in does so again after this time. Kafka: "
            "connections.max.reauth.ms.",
            unit="ms",
            minimum=1_000,
            maximum=86_400_000,
        ),
        ConfigKey(
            "ssl.principal.mapping.rules",
            "str",
            "DEFAULT",
            "Whose a client's certificate is: the first rule that fits its subject, with commas "
            "between rules. RULE:pattern/replacement/, with L or U behind it for small or capital "
            "letters; DEFAULT: the subject as it is, as CN=alice,O=example. Kafka: "
            "ssl.principal.mapping.rules.",
        ),
        ConfigKey(
            "sasl.oauthbearer.expected.issuer",
            "str",
            "",
            "The issuer of tokens, an https address. Its keys are found by discovery where "
            "sasl.oauthbearer.jwks.endpoint.url is not set. Kafka: the same.",
        ),
        ConfigKey(
            "sasl.oauthbearer.expected.audience",
            "str",
            "",
            "Tokens are for one of these, with commas between. Kafka: the same.",
        ),
        ConfigKey(
            "sasl.oauthbearer.jwks.endpoint.url",
            "str",
            "",
            "Where the keys are that tokens are signed with. Kafka: the same.",
        ),
        ConfigKey(
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "int",
            3_600_000,
            "The keys are fetched again after this time, and when a token names another one. "
            "Kafka: the same.",
            unit="ms",
            minimum=1_000,
            maximum=86_400_000,
        ),
        ConfigKey(
            "sasl.oauthbearer.sub.claim.name",
            "str",
            "sub",
            "The claim of a token that is the user's name. Kafka: the same.",
        ),
        ConfigKey(
            "sasl.oauthbearer.groups.claim.name",
            "str",
            "groups",
            "The claim of a token that names the groups of the user, for ACLs of Group:name.",
        ),
        ConfigKey(
            "sasl.oauthbearer.clock.skew.seconds",
            "int",
            30,
            "How far the issuer's clock may be from this one. Kafka: the same.",
            unit="s",
            minimum=0,
            maximum=600,
        ),
        ConfigKey(
            "authorizer",
            "enum",
            "none",
            "acl: only what the access control lists allow may be done, see `mainstem acl`. none: "
            "whoever may connect may do everything. Kafka: authorizer.class.name.",
            choices=("none", "acl"),
        ),
        ConfigKey(
            "super.users",
            "str",
            "",
            "Who may do everything, with semicolons between: User:admin;User:CN=ops. Kafka: "
            "super.users.",
        ),
        ConfigKey(
            "allow.everyone.if.no.acl.found",
            "bool",
            False,
            "What no access control list is about is open to everybody. Kafka: the same.",
        ),
        ConfigKey(
            "audit.enabled",
            "bool",
            False,
            "Administrative acts, refusals and failed sign-ins are written to the table "
            "system/audit.",
        ),
        ConfigKey(
            "audit.sample.ratio",
            "float",
            0.0,
            "The share of reads and writes that is written there as well, of those that are "
            "allowed.",
            minimum=0,
            maximum=1,
        ),
        ConfigKey(
            "audit.queue.rows",
            "int",
            10_000,
            "Rows that wait to be written. What comes when so many wait is left out, and a row "
            "tells how many.",
            minimum=100,
            maximum=1_000_000,
        ),
        ConfigKey(
            "audit.retention.ms",
            "int",
            7_776_000_000,
            "How long rows are kept.",
            unit="ms",
            minimum=3_600_000,
            maximum=315_360_000_000,
        ),
    )
)
