"""What comes beside the messages of calls."""

from __future__ import annotations

from typing import Final

#: In the trailing metadata of calls about access control lists: the gateway's setting `authorizer`.
AUTHORIZER_KEY: Final = "mainstem-authorizer"
