"""Which gateway this is: its id, and the write-ahead log that goes with it and with a warehouse."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mainstem.config import GatewayConfig
from mainstem.delta_log import ObjectStore, Topics
from mainstem.delta_log.store import Warehouse, parse_local_directory
from mainstem.delta_log.system import WAREHOUSE_FILE, make_warehouse_id, read_warehouse_id
from mainstem.delta_log.wal import (
    LocalWalFiles,
    LocalWals,
    ObjectWalFiles,
    ObjectWals,
    OtherLogs,
    Wal,
    WalFiles,
    WalInUse,
    WalPlace,
)
from mainstem.errors import InvalidConfigError, MainstemError, StoreUnavailableError

#: Gateways without a gateway.id on one warehouse. An operator who runs more gives them names.
_UNNAMED_MAX: Final = 64


class GatewayIdentity:
    """An open write-ahead log under a gateway's id. Close it at the end.

    Attributes:
        wal: The log.
        others: Those of other gateways: beside it, and in the warehouse.
        is_shared: The log is in the warehouse, where who takes a topic over looks for it, and with
            it survives the machine, where the warehouse does.

    Args:
        store: The warehouse, where the logs are by default.

    Raises:
        WalInUse: A gateway with this gateway.id runs.
        InvalidConfigError: `gateway.id` cannot be a name, or is missing where it is needed.
        StoreUnavailableError: The log cannot be used, or it has records of another warehouse than
            `store`.
        LogDamagedError: The log is damaged; the message names file and position.
    """

    def __init__(self, config: GatewayConfig, store: Warehouse) -> None:
        wanted = config.text("gateway.id")
        _check_name(wanted)
        in_warehouse = store.wal_directory
        elsewhere = config.text("wal.directory")
        places: list[WalPlace]
        if not elsewhere and in_warehouse is None:
            self.gateway_id, self._files = wanted, _objects(store, wanted)
            places = [ObjectWals(store)]
            self.is_shared = True
        else:
            parent = in_warehouse
            if elsewhere or parent is None:
                parent = Path(parse_local_directory(elsewhere, "wal.directory").path)
            durable = config.text("durability") == "fsync"
            self.gateway_id, self._files = _take(parent, wanted, durable)
            self.is_shared = in_warehouse is not None and in_warehouse.resolve() == parent.resolve()
            places = [LocalWals(parent)]
            if in_warehouse is None:
                places.append(ObjectWals(store))
            elif not self.is_shared:
                places.append(LocalWals(in_warehouse))
        try:
            interval_s = config.number("wal.interval.ms") / 1_000
            self.wal = Wal(self._files, self.gateway_id, interval_s=interval_s)
            _match(self.wal, store)
        except BaseException:
            self._files.close()
            raise
        self.others = OtherLogs(places, self.gateway_id, self.wal.warehouse_id)

    async def close(self) -> None:
        """Writes what is queued, and lets another gateway have the id."""
        await self.others.close()
        await self.wal.close()
        self._files.close()


def _check_name(gateway_id: str) -> None:
    if "/" in gateway_id or gateway_id.startswith(".") or not gateway_id.isprintable():
        raise InvalidConfigError(
            f"gateway.id is {gateway_id!r}; it names a directory: no '/', no '.' at the front, "
            "no control characters",
            name="gateway.id",
        )


def _objects(store: Warehouse, gateway_id: str) -> WalFiles:
    """The log in the warehouse's own store, where nobody can tell which names are free."""
    if not gateway_id:
        raise InvalidConfigError(
            f"gateway.id is not set; a gateway on {store.uri} has its write-ahead log there, and "
            "needs a name that no other gateway has, and that it has again after a restart. Or set "
            "wal.directory to a directory of this machine",
            name="gateway.id",
        )
    return ObjectWalFiles(store, gateway_id)


def _take(parent: Path, wanted: str, durable: bool) -> tuple[str, WalFiles]:
    if wanted:
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


def _match(wal: Wal, store: ObjectStore) -> None:
    """Makes sure that a log and a warehouse belong together, and has the log say so from now on.

    Otherwise all its topics would be missing, as if they had been deleted: when the warehouse's
    volume is not mounted yet, for example.

    Raises:
        StoreUnavailableError: They do not, or nobody can tell.
    """
    found = read_warehouse_id(store)
    topics = wal.topics()
    if wal.warehouse_id:
        if found == wal.warehouse_id:
            return
        whose = f"belongs to warehouse {wal.warehouse_id}"
    elif not topics or _has_one_of(Topics(store), topics):
        wal.belong_to(found or make_warehouse_id(store))
        return
    else:
        whose = "does not say to which warehouse it belongs"
    count = sum(wal.entry_count(*topic) for topic in topics)
    is_what = f"is warehouse {found}" if found else f"is none, as it has no {WAREHOUSE_FILE}"
    raise StoreUnavailableError(
        f"the write-ahead log {wal.uri} {whose} and has {count} acknowledged requests of "
        f"{len(topics)} topics that may be in no table, but {store.uri} {is_what}"
        f"{'' if wal.warehouse_id else ' that has one of these topics'}; mount the warehouse's "
        "volume there, or move the log away to give its records up",
        directory=wal.uri,
        warehouse=store.uri,
    )


def _has_one_of(warehouse: Topics, topics: Sequence[tuple[str, str]]) -> bool:
    """Whether the warehouse has a topic of the log: ids are never given twice."""
    for topic, topic_id in topics:
        with contextlib.suppress(MainstemError):
            opened = warehouse.open(topic)
            if opened.state.topic_id == topic_id:
                return True
    return False
