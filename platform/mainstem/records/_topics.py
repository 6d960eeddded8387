"""Kafka's rule for topic names."""

from __future__ import annotations

import re

from mainstem.errors import InvalidTopicError
from mainstem.limits import TOPIC_NAME_LENGTH_MAX

_NAME = re.compile(r"[a-zA-Z0-9._-]+")

RULE = (
    f"a topic name has 1 to {TOPIC_NAME_LENGTH_MAX} characters "
    "out of letters, digits, '.', '_' and '-', and is neither '.' nor '..'"
)


#: What Kafka's tools and clients believe to be internal, or could be taken for the folder of the
#: platform's own tables.
_RESERVED_PREFIX = "__"
_RESERVED = ("system",)


def check_new_topic_name(name: str) -> str:
    """Returns `name` if a topic may be created under it.

    Raises:
        InvalidTopicError: It breaks Kafka's rule for names, or is reserved. A topic that has such a
            name already stays usable.
    """
    check_topic_name(name)
    if name.startswith(_RESERVED_PREFIX):
        reason = f"names that begin with {_RESERVED_PREFIX!r} are those of Kafka's internal topics"
    elif name in _RESERVED:
        reason = "it is the name of the folder of the platform's own tables"
    else:
        return name
    shown = name if len(name) <= 60 else name[:57] + "..."
    raise InvalidTopicError(
        f"topic name {shown!r} is reserved: {reason}; choose another one", topic=shown
    )


def check_topic_name(name: str) -> str:
    """Returns `name` if it keeps Kafka's rule.

    Raises:
        InvalidTopicError: It does not; the message says the rule and what broke it.
    """
    if not name:
        problem = "it is empty"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = f"it has {len(name)} characters"
    elif name in (".", ".."):
        problem = "that name means a directory"
    elif not _NAME.fullmatch(name):
        wrong = sorted({character for character in name if not _NAME.fullmatch(character)})
        problem = f"it contains {', '.join(map(repr, wrong[:5]))}"
    else:
        return name
    shown = name if len(name) <= 60 else name[:57] + "..."
    raise InvalidTopicError(f"topic name {shown!r} is refused: {problem}; {RULE}", topic=shown)
