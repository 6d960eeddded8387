"""Rules that say whose a certificate is: `ssl.principal.mapping.rules`, as Kafka has them.

With commas between: `DEFAULT`, the subject as it is, or `RULE:PATTERN/REPLACEMENT/`, with `L` or
`U` behind it for small or capital letters. A slash in a pattern or a replacement is written `\\/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mainstem.errors import InvalidConfigError

RULES: Final = "ssl.principal.mapping.rules"

#: One rule and the comma behind it. A comma may be in a pattern as it is: a rule ends with its
#: third slash.
_RULE: Final = re.compile(
    r"(?P<rule>DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<letters>[LU]?)|)\s*(?:,\s*|$)"
)

#: What Java writes otherwise: (?<name>...), but not (?<=...) and (?<!...).
_NAMED_GROUP: Final = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")

#: A part of a replacement: what is escaped, a group, a `$` that is none of that, or text.
_PART: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|(\$)|([^\\$]+|\\)", re.DOTALL)

#: Makes a part of the name of what the pattern has matched.
_Part = Callable[["re.Match[str]"], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """One of the rules.

    Attributes:
        text: As it is written.
    """

    text: str
    _pattern: re.Pattern[str] | None
    _parts: tuple[_Part, ...]
    _letters: str

    def apply(self, subject: str) -> str | None:
        """The name that the rule makes of a subject; None: it does not fit."""
        if self._pattern is None:
            return subject
        if self._pattern.fullmatch(subject) is None:
            return None
        # Every match is replaced, not only the one of the whole, as Kafka does.
        name = self._pattern.sub(
            lambda match: "".join(part(match) for part in self._parts), subject
        )
        if self._letters == "L":
            return name.lower()
        return name.upper() if self._letters == "U" else name


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of the setting, in their order.

    Raises:
        InvalidConfigError: There is none, or one is malformed; the message has it.
    """
    rules: list[Rule] = []
    text = text.strip()
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise _wrong(
                text[at:].partition(", ")[0],
                "it must be DEFAULT or RULE:PATTERN/REPLACEMENT/, with L or U behind the last "
                "slash or nothing; a slash inside is written \\/",
            )
        if found["rule"]:
            rules.append(_rule(found))
        at = found.end()
    if not rules:
        raise InvalidConfigError(
            f"{RULES} has no rule, so that no certificate would say whose it is; set DEFAULT",
            name=RULES,
        )
    return tuple(rules)


def map_subject(rules: tuple[Rule, ...], subject: str) -> str | None:
    """The name by the first rule that fits; None: none does."""
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return name
    return None


def _rule(found: re.Match[str]) -> Rule:
    text = found["rule"]
    if text == "DEFAULT":
        return Rule(text, None, (), "")
    try:
        # Java's \w, \d and letters of both cases are those of ASCII.
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", found["pattern"]), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise _wrong(text, f"its pattern is no regular expression: {error}") from None
    return Rule(text, pattern, _parts(text, pattern, found["replacement"]), found["letters"])


def _parts(text: str, pattern: re.Pattern[str], replacement: str) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    for escaped, number, name, dollar, plain in _PART.findall(replacement):
        if number:
            parts += _numbered(text, pattern, number)
        elif name:
            if name not in pattern.groupindex:
                raise _wrong(text, f"its pattern has no group {name!r}")
            parts.append(_group(name))
        elif dollar or plain == "\\":
            raise _wrong(
                text,
                f"in its replacement {dollar or plain!r} is followed by nothing that it may be: "
                "write $1 for what the first group has matched, \\$ for the sign itself",
            )
        else:
            parts.append(_text(escaped or plain))
    return tuple(parts)


def _numbered(text: str, pattern: re.Pattern[str], digits: str) -> list[_Part]:
    """The group of a number, of which only as many digits count as there are groups."""
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= pattern.groups:
            rest = [_text(digits[end:])] if end < len(digits) else []
            return [_group(int(digits[:end])), *rest]
    if not pattern.groups:
        raise _wrong(text, f"its replacement has ${digits}, and its pattern has no group")
    return [_text(f"${digits}")]  # Kafka takes it for text


def _group(key: int | str) -> _Part:
    return lambda match: match[key] or ""


def _text(text: str) -> _Part:
    return lambda match: text


def _wrong(rule: str, why: str) -> InvalidConfigError:
    return InvalidConfigError(f"{RULES} has {rule!r}: {why}", name=RULES, value=rule)
