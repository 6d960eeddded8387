"""Makes a topic of a backup: its records at their offsets, in one commit."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from mainstem.config import TopicConfig, format_value
from mainstem.delta_log.backup.manifest import BackupFile, Manifest, read_manifest
from mainstem.delta_log.files import check_data_file, new_path
from mainstem.delta_log.format import DataFile, Register
from mainstem.delta_log.store import NotFound, ObjectStore, Warehouse
from mainstem.delta_log.topics import Topics
from mainstem.errors import (
    LogDamagedError,
    StoreUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)

OnRead = Callable[[int, int], None]


def _nothing(done_bytes: int, all_bytes: int) -> None:
    pass


def restore(
    topics: Topics,
    warehouse: Warehouse,
    source: ObjectStore,
    topic: str | None = None,
    config: Mapping[str, object] | None = None,
    *,
    on_read: OnRead = _nothing,
) -> Manifest:
    """Creates a topic with the records of the backup at the root of `source`. Blocks.

    They have the offsets, timestamps, headers, producer ids and sequences that they had; offsets
    that keyed compaction had removed are missing as before. The topic has an id of its own: what
    groups have committed, and producers' memory of what they sent, is not part of it.

    The topic comes to be with all its records in one commit. Whoever is interrupted before that
    leaves no topic, and files that `vacuum-orphans` removes.

    Args:
        topic: What it is called; None: as it was.
        config: Topic settings that win over those of the backup.
        on_read: Told the bytes that are copied, and those of all files.

    Returns:
        The backup, as the topic has it: with its name and settings.

    Raises:
        InvalidRequestError: `source` is not a whole backup.
        InvalidTopicError, InvalidConfigError: A bad name or setting.
        TopicExistsError: There is one of that name, which is not touched.
        UnsupportedTableError: A newer version of mainstem wrote the backup.
        LogDamagedError: A file of the backup is damaged or missing. Nothing was restored.
        StoreUnavailableError: The warehouse or `source` failed, or the warehouse has too little
            space. Nothing was restored.
        OutcomeUnknownError: The store cannot say whether the topic was created.
    """
    manifest, settings = _read_manifest(source, topic, config)
    with _undisturbed(topics, manifest.topic):
        place = topics.place_for(manifest.topic)
    _check_space(warehouse, manifest)
    files: list[DataFile] = []
    try:
        for partition, file in _each(manifest, on_read):
            files.append(file.data_file(partition, new_path(partition, file.base_offset)))
            place.store.put(files[-1].path, _read(source, file))
        contents: list[DataFile | Register] = [*files, *manifest.registers()]
    except BaseException:
        _discard(place.store, files)
        raise
    try:
        with _undisturbed(topics, manifest.topic):
            topics.create_at(
                place,
                len(manifest.partitions),
                settings,
                contents,
                table_format=manifest.table_format,
            )
    except (TopicExistsError, StoreUnavailableError):
        # After anything else the table may have them.
        _discard(place.store, files)
        raise
    return manifest


def check_backup(
    topics: Topics,
    warehouse: Warehouse,
    source: ObjectStore,
    topic: str | None = None,
    config: Mapping[str, object] | None = None,
    *,
    on_read: OnRead = _nothing,
) -> Manifest:
    """Checks all that `restore` would need, and reads every record. Changes nothing.

    Args, returns, raises: As `restore`.
    """
    manifest, settings = _read_manifest(source, topic, config)
    topics.create(manifest.topic, len(manifest.partitions), settings.overrides, validate_only=True)
    _check_space(warehouse, manifest)
    for partition, file in _each(manifest, on_read):
        _read(source, file)
        check_data_file(source, file.data_file(partition))
    return manifest


def _read_manifest(
    source: ObjectStore, topic: str | None, config: Mapping[str, object] | None
) -> tuple[Manifest, TopicConfig]:
    """As the topic shall have it, and its settings."""
    manifest = read_manifest(source)
    settings = TopicConfig.parse({**manifest.config, **(config or {})})
    given = {name: format_value(value) for name, value in settings.overrides.items()}
    return replace(manifest, topic=topic or manifest.topic, config=given), settings


@contextlib.contextmanager
def _undisturbed(topics: Topics, topic: str) -> Iterator[None]:
    """Nobody else creates the topic meanwhile, nor deletes it again.

    Raises:
        TopicExistsError, StoreUnavailableError: Somebody did. Nothing of ours is there.
    """
    try:
        yield
    except UnknownTopicError as error:
        if topics.exists(topic):
            raise TopicExistsError(
                f"topic {topic!r} was created meanwhile; nothing was restored", topic=topic
            ) from error
        raise StoreUnavailableError(
            f"another process created and deleted topic {topic!r} meanwhile; nothing was "
            "restored, try again",
            topic=topic,
        ) from error


def _each(manifest: Manifest, on_read: OnRead) -> Iterator[tuple[int, BackupFile]]:
    """Every file, with its partition; tells how far the caller has come."""
    done_bytes, all_bytes = 0, manifest.size_bytes
    for partition, file in manifest.files():
        yield partition, file
        done_bytes += file.size_bytes
        on_read(done_bytes, all_bytes)


def _read(source: ObjectStore, file: BackupFile) -> pa.Buffer:
    name = f"{source.uri}/{file.path}"
    try:
        with source.open(file.path) as opened:
            data: pa.Buffer = opened.read_buffer()
    except NotFound as error:
        raise LogDamagedError(
            f"the backup's file {name}, with {file.record_count} records, is missing",
            file=file.path,
        ) from error
    except OSError as error:
        raise StoreUnavailableError(f"{name} cannot be read: {error}", path=name) from error
    if data.size != file.size_bytes or hashlib.sha256(data).hexdigest() != file.sha256:
        raise LogDamagedError(
            f"the backup's file {name} is damaged: its {data.size} bytes are not the "
            f"{file.size_bytes} that its manifest names by their checksum; take another copy",
            file=file.path,
        )
    return data


def _discard(store: ObjectStore, files: Sequence[DataFile]) -> None:
    for file in files:
        with contextlib.suppress(StoreUnavailableError):  # `vacuum-orphans` finds it
            store.delete(file.path)


def _check_space(warehouse: Warehouse, manifest: Manifest) -> None:
    free_bytes = warehouse.free_bytes()
    if free_bytes is not None and free_bytes < manifest.size_bytes:
        raise StoreUnavailableError(
            f"the warehouse {warehouse.uri} has {free_bytes} bytes free; the records of "
            f"{manifest.topic!r} need {manifest.size_bytes}. Nothing was restored"
        )
