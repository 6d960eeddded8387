"""What becomes of the settings that more than one kind of Kafka's clients has."""

from __future__ import annotations

from typing import Final

from mainstem.client.fates.fate import ROLES, Fate, accepted, own, refused, used

#: A dictionary of settings inside the dictionary, as confluent-kafka takes it.
NESTED: Final = "default.topic.config"

#: Families of settings that are refused, also those whose names are not in the table.
REFUSED_PREFIXES: Final[dict[str, str]] = {
    "ssl.": "TLS has security.protocol=ssl, ssl.ca.location, ssl.certificate.location and "
    "ssl.key.location, PEM files: remove it",
    "sasl.": "signing in has security.protocol=sasl_ssl and sasl.mechanism, with sasl.username and "
    "sasl.password, or with oauth_cb or sasl.oauthbearer.method=oidc: remove it",
}
_TLS: Final = REFUSED_PREFIXES["ssl."]
_AUTH: Final = REFUSED_PREFIXES["sasl."]

_GRPC: Final = "gRPC looks after its connections by itself"
_LOGS: Final = "the client logs to the Python logger mainstem.client; set its level there"
_NO_METRICS: Final = "the client sends no metrics of its own"
_NO_CHANGE: Final = "the protocol only grows; there is nothing to negotiate"
_CALL_TIMEOUT: Final = "each call takes a timeout of its own, in seconds; 30 if none is given"
_COMPAT: Final = "mainstem.compat.confluent has it"
_C_ONLY: Final = "it is a pointer or a function of the C API: remove it"

_TLS_NAMES: Final = """
ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.key.password ssl.key.pem
ssl_key ssl.certificate.pem ssl_certificate
https.ca.pem ssl.ca.pem ssl_ca ssl.ca.certificate.stores ssl.crl.location
ssl.keystore.location ssl.keystore.password ssl.providers ssl.engine.location ssl.engine.id
ssl.certificate.verify_cb
ssl.protocol ssl.provider ssl.enabled.protocols ssl.keystore.type ssl.keystore.key
ssl.keystore.certificate.chain ssl.truststore.certificates ssl.truststore.type
ssl.truststore.location ssl.truststore.password ssl.keymanager.algorithm
ssl.trustmanager.algorithm ssl.secure.random.implementation ssl.engine.factory.class
"""
_SASL_NAMES: Final = """
sasl.kerberos.service.name sasl.kerberos.principal
sasl.kerberos.kinit.cmd sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin
enable.sasl.oauthbearer.unsecure.jwt
oauthbearer_token_refresh_cb
sasl.oauthbearer.extensions
sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.metadata.authentication.type sasl.jaas.config sasl.client.callback.handler.class
sasl.login.callback.handler.class sasl.login.class
sasl.kerberos.ticket.renew.window.factor sasl.kerberos.ticket.renew.jitter
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.refresh.min.period.seconds sasl.login.refresh.buffer.seconds
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode
sasl.oauthbearer.assertion.template.file
"""

_MECHANISMS: Final = {
    name.lower(): name for name in ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
}
_OTHER_MECHANISMS: Final = {
    "plain": "the password itself would travel: set SCRAM-SHA-512, with the same sasl.username and "
    "sasl.password",
    "gssapi": "there is no Kerberos here: set SCRAM-SHA-512 or OAUTHBEARER",
    "scram-sha-1": "gateways keep no such keys: set SCRAM-SHA-512",
}

SHARED: Final = [
    *accepted(
        "PCA",
        "logger",
        "the client logs to the Python logger mainstem.client",
        loud=True,
    ),
    *accepted("PCA", "debug log_level log.queue log.thread.name log.connection.close", _LOGS),
    *accepted(
        "PCA",
        "statistics.interval.ms",
        "no statistics are reported",
        values=("0",),
        otherwise="set it to 0, or use mainstem.compat.confluent, which calls stats_cb",
    ),
    *accepted(
        "PCA",
        "throttle_cb",
        "a client that is asked to wait waits by itself",
    ),
    *refused(
        "P",
        "error_cb",
        "errors come with the record: on_delivery, a future, or flush(); "
        "mainstem.compat.confluent calls error_cb",
    ),
    *refused("C", "error_cb", "poll() raises the error; mainstem.compat.confluent calls error_cb"),
    *refused(
        "A", "error_cb", "each call raises its error; mainstem.compat.confluent calls error_cb"
    ),
    *refused("PCA", "stats_cb", f"the client reports no statistics; {_COMPAT}"),
    *refused(
        "PCA",
        "log_cb background_event_cb socket_cb connect_cb closesocket_cb open_cb resolve_cb opaque "
        "enabled_events ssl_engine_callback_data",
        _C_ONLY,
    ),
    *refused("PCA", "plugin.library.paths interceptors", "there are no plugins: remove it"),
    *refused("P", "interceptor.classes", "there are no interceptors: wrap produce()"),
    *refused("C", "interceptor.classes", "there are no interceptors: wrap poll()"),
    *own("PCA", "bootstrap.servers client.id"),
    *used("PCA", "metadata.broker.list", "bootstrap.servers"),
    *used("PC", "metadata.max.age.ms", "metadata.max.age.ms", "0 is 1", clamps=True),
    *used(
        "PC",
        "topic.metadata.refresh.interval.ms",
        "metadata.max.age.ms",
        "-1 is the longest time",
        words={"-1": "2147483647"},
        clamps=True,
        yields=True,
    ),
    *accepted(
        "A",
        "request.timeout.ms default.api.timeout.ms socket.timeout.ms",
        _CALL_TIMEOUT,
        loud=True,
    ),
    *accepted(
        "A",
        "retries retry.backoff.ms retry.backoff.max.ms",
        "a call is never repeated once a gateway may have seen it",
    ),
    *accepted(
        "A",
        "metadata.max.age.ms topic.metadata.refresh.interval.ms message.max.bytes "
        "message.copy.max.bytes receive.message.max.bytes max.in.flight "
        "max.in.flight.requests.per.connection "
        "topic.metadata.propagation.max.ms allow.auto.create.topics client.rack",
        "administration does not depend on it",
    ),
    *accepted("P", "receive.message.max.bytes client.rack", "it bounds no produce request"),
    *accepted(
        "P", "topic.metadata.propagation.max.ms", "a topic exists for all once it was created"
    ),
    *refused(
        "A", "bootstrap.controllers", "there are no controllers: set bootstrap.servers to a gateway"
    ),
    *accepted(
        "PCA",
        "topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.fast.cnt "
        "topic.metadata.refresh.sparse metadata.max.idle.ms",
        "what was used stays known until close(), and a leader that moved is looked for at once",
    ),
    *accepted(
        "PCA",
        "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms "
        "metadata.cluster.check.enable",
        "bootstrap.servers are asked again whenever no gateway answers",
    ),
    *refused("PCA", "topic.blacklist", "there are no hidden topics: subscribe to those you want"),
    *accepted(
        "PCA",
        "socket.blocking.max.ms socket.send.buffer.bytes socket.receive.buffer.bytes "
        "socket.keepalive.enable socket.nagle.disable socket.max.fails send.buffer.bytes "
        "receive.buffer.bytes broker.address.ttl socket.connection.setup.timeout.ms "
        "socket.connection.setup.timeout.max.ms connections.max.idle.ms reconnect.backoff.ms "
        "reconnect.backoff.max.ms reconnect.backoff.jitter.ms client.dns.lookup "
        "bootstrap.resolve.timeout.ms",
        _GRPC,
    ),
    *accepted(
        "PCA",
        "broker.address.family",
        "gRPC takes the first address that answers",
        loud=True,
    ),
    *accepted(
        "PCA",
        "api.version.request api.version.request.timeout.ms api.version.fallback.ms "
        "broker.version.fallback",
        _NO_CHANGE,
    ),
    *accepted(
        "PCA",
        "enable.metrics.push metrics.sample.window.ms metrics.num.samples metrics.recording.level "
        "auto.include.jmx.reporter",
        _NO_METRICS,
    ),
    *refused("PCA", "metric.reporters", f"{_NO_METRICS}: remove it"),
    *accepted(
        "PCA",
        "enable.random.seed internal.termination.signal builtin.features",
        "it is about librdkafka's own workings",
    ),
    *refused("PCA", "config.providers", "give the values themselves, or read them in Python"),
    *used("PCA", NESTED, "", "its settings count as if they stood beside the others"),
    *refused("PCA", "default_topic_conf", "give its settings beside the others"),
    *used(
        "PCA",
        "security.protocol",
        "security.protocol",
        words={"": "plaintext"},
        refuses={
            "sasl_plaintext": "whoever listens on a connection that is not encrypted could go on "
            "in the name of who has signed in: set sasl_ssl"
        },
    ),
    *used(
        "PCA",
        "sasl.mechanism",
        "sasl.mechanism",
        words=_MECHANISMS,
        refuses=_OTHER_MECHANISMS,
    ),
    *used(
        "PCA",
        "sasl.mechanisms",
        "sasl.mechanism",
        words=_MECHANISMS,
        refuses=_OTHER_MECHANISMS,
    ),
    *own("PCA", "sasl.username sasl.password sasl.password.location"),
    Fate(
        "oauth_cb",
        frozenset(ROLES),
        "used",
        "a function that is called with sasl.oauthbearer.config and returns (token, its end in "
        "seconds since 1970)",
    ),
    *own(
        "PCA",
        "sasl.oauthbearer.method sasl.oauthbearer.config sasl.oauthbearer.token.endpoint.url "
        "sasl.oauthbearer.client.id sasl.oauthbearer.client.secret "
        "sasl.oauthbearer.client.secret.location sasl.oauthbearer.scope https.ca.location",
    ),
    *used(
        "PCA",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.id",
    ),
    *used(
        "PCA",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
    ),
    *accepted(
        "PCA",
        "sasl.oauthbearer.grant.type",
        "it is the one that there is",
        values=("client_credentials",),
        otherwise="set it to client_credentials, or give oauth_cb",
    ),
    *own("PCA", "ssl.ca.location ssl.certificate.location ssl.key.location"),
    *accepted(
        "PCA",
        "enable.ssl.certificate.verification",
        "a gateway's certificate is always checked",
        values=("true",),
        otherwise="a certificate that is not checked proves nothing: set ssl.ca.location to the "
        "authority that it is from",
    ),
    *accepted(
        "PCA",
        "ssl.endpoint.identification.algorithm",
        "a gateway's certificate has to be that of the host in its address",
        values=("https",),
        otherwise="remove it, and have the gateway's host in its certificate",
    ),
    *refused("PCA", "security.providers", _TLS),
    *refused("PCA", _TLS_NAMES, _TLS),
    *refused("PCA", _SASL_NAMES, _AUTH),
]
