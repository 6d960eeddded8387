"""Producer ids that nobody can invent: a number that is given once, and a tag that proves it. Pure.

Every gateway of a warehouse can tell from an id alone that one of them has given it out, before and
after restarts, without a look at the store: the tag is made of the number under a secret of the
warehouse. Without it, a client that counts up would have every gateway and table remember each of
its inventions for a day, and could send in another producer's name. Where callers prove who they
are, the tag is made of the principal as well, so that an id is of no use to anybody else.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mainstem.limits import PRODUCER_NUMBER_MAX

#: An id is positive in every language's 64-bit integer.
_TAG_BITS: Final = 63 - PRODUCER_NUMBER_MAX.bit_length()

#: Of which the tag takes the last bits.
_HASH_BYTES: Final = 4

assert 0 < _TAG_BITS <= 8 * _HASH_BYTES


class ProducerIds:
    """The ids of one warehouse.

    Args:
        secret: Of 16 to 64 bytes; the same for ever.
    """

    def __init__(self, secret: bytes) -> None:
        assert len(secret) >= 16
        self._hash = blake2b(key=secret, digest_size=_HASH_BYTES)

    def of(self, number: int, owner: str = "") -> int:
        """The id with this number, of that principal, or nobody's."""
        assert 1 <= number <= PRODUCER_NUMBER_MAX
        return number << _TAG_BITS | self._tag(number, owner)

    def has_given(self, producer_id: int, owner: str = "") -> bool:
        """Whether a gateway of the warehouse has given this id to that principal, or to nobody in
        particular."""
        number, tag = divmod(producer_id, 1 << _TAG_BITS)
        return 1 <= number <= PRODUCER_NUMBER_MAX and tag == self._tag(number, owner)

    def _tag(self, number: int, owner: str) -> int:
        hashed = self._hash.copy()
        hashed.update(number.to_bytes(8, "little"))
        hashed.update(owner.encode())
        return int.from_bytes(hashed.digest(), "little") & ((1 << _TAG_BITS) - 1)
