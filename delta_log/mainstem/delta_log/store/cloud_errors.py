"""What an object storage service says when a call fails, in our words. Pure."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

#: What obstore prints behind a message for its own developers.
_DEBUG: Final = "\n\nDebug source:"

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")

#: The query of a URL can have a signature or a token.
_QUERY: Final = re.compile(r"(https?://[^\s?]+)\?[^\s)]+")

#: What obstore says of an answer 200 to a request for a range.
_WHOLE: Final = "non-partial response"

#: Where a machine's role is asked for last, when nobody has named credentials.
_NO_KEYS: Final = re.compile(r"http://(169\.254\.169\.254|\[fd00:ec2::254\])/latest/")
_NO_KEYS_TEXT: Final = (
    "no credentials were found, and the role of this machine gave none: set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the settings store.access.key.id and "
    "store.secret.access.key"
)

#: Answered before anything was done. Amazon S3, "Error responses".
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 411, 413, 416, 501})

#: The bucket or container, not the object. S3, Azure Blob Storage.
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})


class Meaning(enum.Enum):
    """What a failed call means for the object that it was about."""

    NOT_FOUND = enum.auto()  #: There is no such object.
    EXISTS = enum.auto()  #: A put found one, and wrote nothing.
    PAST_THE_END = enum.auto()  #: The range begins where the object has ended.
    NO_RANGE = enum.auto()  #: The whole object came: the service has no such ranges of it.
    REFUSED = enum.auto()  #: Nothing was done, nor will it be if it is tried again.
    UNKNOWN = enum.auto()  #: It may have been done.


@dataclass(frozen=True, slots=True)
class CloudFailure:
    """A failed call.

    Attributes:
        name: Short, for counting: the service's own code, else the status, else what broke.
        text: One line, without secrets.
    """

    meaning: Meaning
    name: str
    text: str


def cloud_failure(error: Exception) -> CloudFailure:
    """What an exception of obstore means.

    A bucket that is not there is no proof that an object in it was deleted: it may be the wrong
    endpoint.
    """
    message = _QUERY.sub(r"\1", str(error).partition(_DEBUG)[0])
    status = _STATUS.search(message)
    code = _CODE.search(message)
    if _NO_KEYS.search(message):
        return CloudFailure(Meaning.REFUSED, "no_credentials", _NO_KEYS_TEXT)
    name = code[1] if code else f"HTTP_{status[1]}" if status else _name_of(message)
    text = " ".join(message.partition("<?xml")[0].partition("<Error>")[0].split()).rstrip(": ")
    if code:
        said = _MESSAGE.search(message)
        text += f": {code[1]}" + (f", {' '.join(said[1].split())}" if said else "")
    number = int(status[1]) if status else 0
    return CloudFailure(_meaning(type(error).__name__, number, name, message), name, text)


def _meaning(kind: str, status: int, name: str, message: str) -> Meaning:
    if name in _NO_BUCKET:
        return Meaning.REFUSED
    if kind in ("NotFoundError", "FileNotFoundError"):
        return Meaning.NOT_FOUND
    if kind in ("AlreadyExistsError", "PreconditionError"):
        # 409 says that another request about the same name is under way, not who wins.
        return Meaning.EXISTS if status in (0, 304, 412) else Meaning.UNKNOWN
    if _WHOLE in message:
        return Meaning.NO_RANGE
    if status == 416:
        return Meaning.PAST_THE_END
    if status in _REFUSED or kind in (
        "PermissionDeniedError",
        "UnauthenticatedError",
        "InvalidPathError",
        "NotSupportedError",
        "UnknownConfigurationKeyError",
    ):
        return Meaning.REFUSED
    return Meaning.UNKNOWN


def _name_of(message: str) -> str:
    return "timeout" if "timed out" in message or "timeout" in message else "connection"
