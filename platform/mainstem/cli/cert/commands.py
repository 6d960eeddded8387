"""`mainstem cert ...`"""

from __future__ import annotations

import socket
from pathlib import Path

import click

from mainstem.cli.context import (
    Settings,
    fail,
    pass_settings,
    print_object,
    reports_errors,
    say,
)
from mainstem.cli.help import ExampleGroup

#: Longer than anybody tries out; short enough that nobody builds on it for ever.
_DAYS = 365


@click.group(cls=ExampleGroup)
def cert() -> None:
    """Make certificates for trying TLS out.

    \b
    EXAMPLES
      mainstem cert dev ./certs
      mainstem cert dev ./certs --host gateway-1.example.com --client reports
    """


@cert.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or an address of the gateway's machine; may be repeated.  [default: localhost, "
    "127.0.0.1, ::1 and this machine's name]",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    default=["client"],
    show_default=True,
    help="Who gets a client's certificate; may be repeated.",
)
@click.option(
    "--days", type=click.IntRange(1, 3650), default=_DAYS, show_default=True, help="How long."
)
@pass_settings
@reports_errors
def dev(
    settings: Settings,
    directory: Path,
    hosts: tuple[str, ...],
    clients: tuple[str, ...],
    days: int,
) -> None:
    """Make an authority, a gateway's certificate, and clients' certificates.

    DIRECTORY gets ca.pem and ca.key, gateway.pem and gateway.key, and NAME.pem and NAME.key for
    each client. An authority that is there already is used again, so that certificates made later
    are as good as the first ones; the others are replaced, which a running gateway notices. Whoever
    has ca.key can pretend to be anybody: for production use an authority of your organisation.

    \b
    EXAMPLES
      mainstem cert dev ./certs
      mainstem cert dev ./certs --host gateway-1.example.com --client reports
    """
    from mainstem.cli.cert.development import (
        load_pair,
        new_authority,
        new_certificate,
        write_pair,
    )

    for name in clients:
        if not name or name in ("ca", "gateway") or Path(name).name != name or name[0] == ".":
            fail(f"{name!r} cannot be a client's name here: its files would be {name}.pem and .key")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        ca, ca_key = directory / "ca.pem", directory / "ca.key"
        if ca.exists() or ca_key.exists():
            authority = load_pair(ca, ca_key)
        else:
            authority = new_authority(days)
            write_pair(authority, ca, ca_key)
        wanted = hosts or ("localhost", "127.0.0.1", "::1", socket.gethostname())
        made = {"gateway": new_certificate(authority, "gateway", wanted, days)}
        made |= {name: new_certificate(authority, name, (), days) for name in clients}
        for name, pair in made.items():
            write_pair(pair, directory / f"{name}.pem", directory / f"{name}.key")
    except (OSError, ValueError, TypeError) as error:
        fail(f"no certificates could be made in {directory}: {error}")
    paths = {name: str(directory / f"{name}.pem") for name in ("ca", *made)}
    print_object(settings, {**paths, "hosts": ",".join(wanted), "days": days})
    say(
        f"\nmainstem -X ssl.certificate.location={paths['gateway']} "
        f"-X ssl.key.location={directory / 'gateway.key'} gateway run\n"
        f"mainstem -X security.protocol=ssl -X ssl.ca.location={paths['ca']} topic list"
    )
