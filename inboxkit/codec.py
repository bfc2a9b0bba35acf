"""Codecs: how messages become payloads.

Any object with `encode(message) -> bytes` and `decode(payload, type)` is one; a table names its own by
``class X(Inbox, table="…", codec=…)``.
"""

from __future__ import annotations

from inboxkit._core.json_codec import JSON, JsonCodec
from inboxkit._core.spec import PayloadCodec as Codec

__all__ = ["JSON", "Codec", "JsonCodec"]
