"""Which gateway this is: its id, and the write-ahead log that goes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mainstem.config import GatewayConfig
from mainstem.delta_log.store import parse_warehouse
from mainstem.delta_log.wal import LocalWalFiles, Wal, WalInUse
from mainstem.errors import InvalidConfigError

#: Gateways without a gateway.id on one warehouse. Whoever runs more gives them names.
_UNNAMED_MAX: Final = 64


class Identity:
    """An open write-ahead log under a gateway's id. Close it at the end.

    Args:
        warehouse_uri: Where the logs are by default.

    Raises:
        WalInUse: A gateway with this gateway.id runs.
        StoreUnavailableError: The directory cannot be used.
        LogDamagedError: The log is damaged; the message names file and position.
    """

    def __init__(self, config: GatewayConfig, warehouse_uri: str) -> None:
        place = config.text("wal.directory")
        parent = (
            Path(parse_warehouse(place, "wal.directory").path)
            if place
            else Path(warehouse_uri) / "wal"
        )
        durable = config.text("durability") == "fsync"
        self.gateway_id, self._files = _take(parent, config.text("gateway.id"), durable)
        try:
            self.wal = Wal(self._files, self.gateway_id)
        except BaseException:
            self._files.close()
            raise

    async def close(self) -> None:
        """Writes what is queued, and lets another gateway have the id."""
        await self.wal.close()
        self._files.close()


def _take(parent: Path, wanted: str, durable: bool) -> tuple[str, LocalWalFiles]:
    if wanted:
        if "/" in wanted or wanted.startswith("."):
            raise InvalidConfigError(
                f"gateway.id is {wanted!r}; it names a directory: no '/', no '.' at the front",
                name="gateway.id",
            )
        return wanted, LocalWalFiles(parent / wanted, durable=durable)
    for number in range(_UNNAMED_MAX):
        name = f"gateway-{number}"
        try:
            return name, LocalWalFiles(parent / name, durable=durable)
        except WalInUse:
            continue
    raise InvalidConfigError(
        f"{_UNNAMED_MAX} gateways without a gateway.id run on {parent}; give this one a name",
        name="gateway.id",
    )
