"""A script seen from inside: its statements recorded, and chosen ones refused, where it runs in one go."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from inboxkit._sql.statement import Reading, Script, Statement, Steps
from inboxkit.errors import DatabaseError

from .faults import Faults, Operation
from .recording import Kind, Recorded, Recording

__all__ = ["CrashHere", "RecordedScript"]

T = TypeVar("T")

_BEGIN: Final = Statement("begin", "BEGIN", returns_rows=False)
_COMMIT: Final = Statement("commit", "COMMIT", returns_rows=False)
_ROLLBACK: Final = Statement("rollback", "ROLLBACK", returns_rows=False)


class CrashHere(BaseException):
    """Ends a script at a statement where the process is to crash; its transaction is undone."""


class RecordedScript(Generic[T]):
    """One run of a script. Its steps are made in whichever thread the driver runs them in."""

    def __init__(
        self,
        script: Script[T],
        *,
        recording: Recording,
        faults: Faults,
        connection: int,
    ) -> None:
        self._script = script
        self._recording = recording
        self._faults = faults
        self._connection = connection
        self._transaction = recording.new_transaction()
        self._has_begun = False

    @property
    def script(self) -> Script[T]:
        """What to give the driver."""
        return Script(self._script.name, self._steps, self._script.transaction)

    def committed(self) -> Operation | None:
        """Note the COMMIT after the driver has returned; None where there was none, or no fault asks."""
        if not self._has_begun:
            return None
        recorded = self._done("commit", _COMMIT)
        return self._commit(recorded.number) if self._faults.has_any else None

    def failed(self, error: BaseException) -> None:
        """Note what the driver raised."""
        if not self._has_begun:
            return
        recorded = self._note("rollback", _ROLLBACK)
        if isinstance(error, DatabaseError | CrashHere):
            self._recording.answered(recorded)
        else:
            self._recording.failed(recorded, error)

    def _steps(self, reading: Reading) -> Steps[T]:
        # The clock is read after BEGIN, so that is done.
        if self._script.transaction != "none":
            self._done("begin", _BEGIN)
            self._has_begun = True
        steps = self._script.steps(reading)
        faults = self._faults
        try:
            statement = next(steps)
            while True:
                operation = self._about_to_send(statement) if faults.has_any else None
                if operation is not None and (refusal := faults.refusal_of(operation)) is not None:
                    statement = steps.throw(refusal)
                    continue
                recorded = self._note("statement", statement)
                try:
                    answer = yield statement
                except BaseException as error:
                    self._recording.failed(recorded, error)
                    if not isinstance(error, DatabaseError):
                        raise
                    statement = steps.throw(error)
                    continue
                self._recording.answered(recorded, answer)
                if operation is not None:
                    self._crash_if(faults.crashes_after(operation))
                statement = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
        finally:
            steps.close()
        if self._has_begun and faults.has_any:
            ending = self._commit(self._recording.next_number)
            self._crash_if(faults.crashes_before(ending))
        return result

    def _about_to_send(self, statement: Statement) -> Operation:
        operation = Operation(
            self._recording.next_number,
            "statement",
            statement.name,
            statement.text,
            self._script.name,
            commits=not self._has_begun,
        )
        self._crash_if(self._faults.crashes_before(operation))
        return operation

    def _commit(self, number: int) -> Operation:
        return Operation(number, "commit", "commit", "COMMIT", self._script.name, commits=True)

    def _note(self, kind: Kind, statement: Statement) -> Recorded:
        # A statement outside a transaction commits by itself, so it has a number of its own.
        lone = kind == "statement" and not self._has_begun
        return self._recording.sent(
            kind,
            statement,
            script=self._script.name,
            connection=self._connection,
            transaction=self._recording.new_transaction() if lone else self._transaction,
        )

    def _done(self, kind: Kind, statement: Statement) -> Recorded:
        return self._recording.done(
            kind,
            statement,
            script=self._script.name,
            connection=self._connection,
            transaction=self._transaction,
        )

    def _crash_if(self, crashes: bool) -> None:
        if crashes:
            raise CrashHere
