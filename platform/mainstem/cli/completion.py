"""What the shell offers where a topic or a group is typed: those that a gateway has.

Silent where no gateway answers soon: who presses Tab waits for it, and sees every word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from mainstem.cli.context import admin_client
from mainstem.cli.options import DEFAULT_SERVERS, Settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mainstem.client import AdminClient

#: A gateway near by answers in some milliseconds. Longer, and Tab seems to hang.
_TIMEOUT_S: Final = 1.0


def complete_topics(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """The names of topics that begin so."""
    return _offers(
        context,
        parameter,
        begun,
        lambda admin: (one.topic for one in admin.list_topics(timeout=_TIMEOUT_S)),
    )


def complete_groups(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """The names of groups that begin so."""
    return _offers(
        context,
        parameter,
        begun,
        lambda admin: (one.group_id for one in admin.list_consumer_groups(timeout=_TIMEOUT_S)),
    )


def _offers(
    context: click.Context,
    parameter: click.Parameter,
    begun: str,
    ask: Callable[[AdminClient], Iterable[str]],
) -> list[CompletionItem]:
    import logging

    from click.shell_completion import CompletionItem

    logging.disable()
    os.environ["GRPC_VERBOSITY"] = "NONE"
    settings = context.find_object(Settings) or Settings()
    servers = context.params.get("bootstrap_servers") or settings.bootstrap_servers
    typed = context.params.get(parameter.name or "") or ()
    before, _, last = begun.rpartition(",") if parameter.name == "topics" else ("", "", begun)
    start = f"{before}," if before else ""
    try:
        with admin_client(servers or DEFAULT_SERVERS) as admin:
            names = list(ask(admin))
    except Exception:
        return []
    taken = {*(typed if isinstance(typed, tuple) else ()), *before.split(",")}
    return [
        CompletionItem(start + name)
        for name in sorted(names)
        if name.startswith(last) and name not in taken
    ]
