"""All that is wrong with one configuration, told in one error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.errors import InvalidConfigError


class Faults:
    """What is wrong with one configuration, to be told in one error.

    Args:
        kind: Of that error.
    """

    def __init__(self, kind: type[InvalidConfigError] = InvalidConfigError) -> None:
        self._kind = kind
        self._found: list[InvalidConfigError] = []
        self._names: set[str] = set()

    def add(self, error: InvalidConfigError, *names: str) -> None:
        """Keeps an error about these settings, the first of which its facts name."""
        found = error if isinstance(error, self._kind) else self._kind(error.message)
        found.facts = {**error.facts, "name": names[0]}
        self._found.append(found)
        self._names.update(names)

    @contextmanager
    def about(self, *names: str) -> Iterator[None]:
        """Keeps an error of the block, unless one of the settings has a fault already."""
        try:
            yield
        except InvalidConfigError as error:
            if self._names.isdisjoint(names):
                self.add(error, error.facts.get("name", names[0]), *names)

    def tell(self) -> None:
        """Raises what was kept, if anything was.

        Raises:
            InvalidConfigError: Its fact `name` is the first wrong setting, `names` has all of them.
        """
        if not self._found:
            return
        names = [error.facts["name"] for error in self._found]
        if len(self._found) == 1:
            error = self._found[0]
        else:
            lines = "".join(f"\n- {error.message}" for error in self._found)
            error = self._kind(f"{len(names)} settings cannot be used:{lines}", name=names[0])
        error.facts["names"] = ",".join(names)
        raise error
