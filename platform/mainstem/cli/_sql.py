"""`mainstem sql "SELECT ..."`"""

from __future__ import annotations

import click

from mainstem.cli._context import Settings, pass_settings, reports_errors


@click.command()
@click.argument("query")
@pass_settings
@reports_errors
def sql(settings: Settings, query: str) -> None:
    """t."""
