"""Addresses of gateways, as settings have them."""

from __future__ import annotations

import pytest

from mainstem.config import split_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9490", "127.0.0.1", 9490),
        ("gate_way.example-1:1", "gate_way.example-1", 1),
        ("[::1]:9490", "[::1]", 9490),
        ("[fe80::1%eth0]:9490", "[fe80::1%eth0]", 9490),
        ("[::ffff:10.0.0.1]:9490", "[::ffff:10.0.0.1]", 9490),
        ("PLAINTEXT://127.0.0.1:9490", "127.0.0.1", 9490),
        ("plaintext://[::]:0", "[::]", 0),
        ("dns:///gateway:9490", "gateway", 9490),
        ("*:9490", "*", 9490),
        (" 127.0.0.1:65535 ", "127.0.0.1", 65_535),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("127.0.0.1", "an address is host:port"),
        (":9490", "an address is host:port"),
        ("gateway:", "an address is host:port"),
        ("gateway:²", "an address is host:port"),
        ("gateway:-1", "an address is host:port"),
        ("a b:9490", "an address is host:port"),
        ("user@gateway:9490", "an address is host:port"),
        ("gateway:9490/", "an address is host:port"),
        ("[gateway]:9490", "an address is host:port"),
        ("gateway:65536", "a port is 0 to 65535"),
        ("h:1,h:2", "it is one address"),
        ("::1:9490", "an IPv6 address stands in brackets"),
        ("1.2.3.4:9490:1", "an IPv6 address stands in brackets"),
        ("http://gateway:9490", "http:// is not supported"),
        ("SSL://gateway:9490", "SSL:// is not supported"),
        ("grpc://gateway:9490", "grpc:// is not supported"),
    ],
)
def test_what_is_no_address_is_refused_with_the_form(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split_address(text)
