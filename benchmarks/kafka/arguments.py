"""What the command lines of the benchmarks have in common."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Sequence

from benchmarks.kafka.row import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--pairs`, `--rows` and `--scale`."""
    parser.add_argument("--pairs", type=pairs, default=5, help="turns of each variant")
    parser.add_argument("--rows", default="", help="parts of names, with commas between")
    parser.add_argument("--scale", type=scale, default=1.0, help="of the numbers of records")


def pairs(text: str) -> int:
    """From 1 on.

    Raises:
        argparse.ArgumentTypeError: It is not.
    """
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 on")
    return int(text)


def scale(text: str) -> float:
    """Above 0.

    Raises:
        argparse.ArgumentTypeError: It is not.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return value


def chosen(parser: argparse.ArgumentParser, rows: Sequence[Row], parts: str) -> list[Row]:
    """The rows that have one of the parts in their names; all where there are no parts.

    Ends the process where a part is in no name: a run of an hour would lack that row.
    """
    wanted = [part.strip() for part in parts.split(",") if part.strip()]
    for part in wanted:
        if not any(part in row.name for row in rows):
            names = "; ".join(row.name for row in rows)
            parser.error(f"no row has '{part}' in its name; there are: {names}")
    return [row for row in rows if not wanted or any(part in row.name for part in wanted)]


def end_when_told(*, also_by_ctrl_c: bool = True) -> None:
    """SIGTERM, and SIGHUP of a terminal that is closed, end the process as an exception does.

    So its servers, which are in sessions of their own, are stopped, as after Ctrl-C.

    Args:
        also_by_ctrl_c: That ends it likewise, without a traceback. False: it raises
            KeyboardInterrupt, as ever.
    """
    numbers = [signal.SIGTERM, signal.SIGHUP]
    if also_by_ctrl_c:
        numbers.append(signal.SIGINT)
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda told, _: sys.exit(128 + told))
