"""Names of attributes: those of the semantic conventions of messaging, and inboxkit's own."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATTEMPT",
    "BATCH_COUNT",
    "DESTINATION",
    "ERROR_TYPE",
    "GROUP",
    "MESSAGE_ID",
    "OPERATION",
    "OPERATION_TYPE",
    "OUTCOME",
    "SERVICE",
    "SYSTEM",
    "SYSTEM_NAME",
    "TABLE",
]

# Written out: the package of constants changes with each of its versions while the conventions are in
# development.
SYSTEM: Final = "messaging.system"
SYSTEM_NAME: Final = "inboxkit"
DESTINATION: Final = "messaging.destination.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

SERVICE: Final = "inboxkit.service"
TABLE: Final = "inboxkit.table"
GROUP: Final = "inboxkit.group"
ATTEMPT: Final = "inboxkit.attempt"
OUTCOME: Final = "inboxkit.outcome"
