"""Throw-away servers of a run: found by its processes, or started at need."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from inboxkit_testing.servers._errors import ServerUnavailableError

__all__ = ["REQUIRE_VARIABLE", "join_or_start", "required_servers", "run_key"]

REQUIRE_VARIABLE = "INBOXKIT_REQUIRE"
"""Servers, split by commas, whose absence fails a test that would else be skipped."""
_XDIST_VARIABLE = "PYTEST_XDIST_TESTRUNUID"
_SUPERVISOR = Path(__file__).with_name("_supervisor.py")


def required_servers() -> frozenset[str]:
    """What `INBOXKIT_REQUIRE` lists, such as ``{"postgres"}``."""
    names = os.environ.get(REQUIRE_VARIABLE, "").split(",")
    return frozenset(name.strip() for name in names if name.strip())


def run_key(run: str | None) -> str:
    """What the processes of one run call it.

    Args:
        run: Its name. None: the run of pytest-xdist, so that its workers share a server; outside of
            it a new one.
    """
    key = run or os.environ.get(_XDIST_VARIABLE) or f"pid{os.getpid()}x{secrets.token_hex(4)}"
    return "".join(sign for sign in key if sign.isalnum())[-24:]


def join_or_start(
    key: str,
    settings: Callable[[Path, int | None], dict[str, Any]],
    *,
    variable: str,
    durable: bool = False,
) -> tuple[Path, IO[bytes]]:
    """The folder of the run's server, and what counts this process among its users until it is closed.

    Args:
        key: The run's, and the kind's of server.
        settings: Given the new folder and the user whom the server will run as (None: ourselves),
            makes the supervisor's settings.
        variable: What names a server instead, for messages.
        durable: Whether what is committed has reached the disk, as with an ordinary server.

    Raises:
        ServerUnavailableError: It could not be started.
    """
    if sys.platform == "win32":
        raise ServerUnavailableError(f"throw-away servers need Unix; name one in {variable}")
    from inboxkit_testing.servers import _folders  # noqa: PLC0415 - needs Unix

    common = _folders.common_folder()
    key = f"{key}durable" if durable else key
    with _folders.locked(common):
        _folders.sweep(common)
        for folder in _folders.matching(common, key):
            users = _folders.join(folder)
            if users is not None:
                return folder, users
        folder = common / f"{key}-{secrets.token_hex(3)}"
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)
        (folder / "users").touch()
        users = _folders.users_of(folder)
        assert users is not None
        try:
            memory = None if durable else _folders.memory_folder()
            _start(folder, settings, memory, variable, durable=durable)
        except BaseException as error:
            users.close()
            if isinstance(error, ServerUnavailableError):
                _folders.remove(folder)
            raise
        return folder, users


def _start(
    folder: Path,
    settings: Callable[[Path, int | None], dict[str, Any]],
    memory: Path | None,
    variable: str,
    *,
    durable: bool,
) -> None:
    """Have a supervisor bring up the server in its folder, and wait until it is ready."""
    if memory is not None:
        (folder / "data").symlink_to(memory / folder.name)
    user, group = _other_user()
    made = {**settings(folder, user), "password": secrets.token_hex(12), "durable": durable}
    (folder / "settings.json").touch(mode=0o600)
    (folder / "settings.json").write_text(json.dumps({**made, "user": user, "group": group}))
    with (folder / "log").open("ab") as log_file:
        supervisor = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_file,
            cwd="/",
            start_new_session=True,
        )
    assert supervisor.stdout is not None
    with supervisor.stdout as answers:
        answer = answers.readline().decode()
    supervisor.wait()  # it has left its work to a child that is not ours
    if answer != "ready\n":
        log = (folder / "log").read_text(errors="replace")[-2000:]
        raise ServerUnavailableError(
            f"the throw-away {made['title']} did not start "
            f"({answer.strip() or 'its supervisor ended'}); "
            f"name a server in {variable}, or see to what its log says:\n{log}"
        )


def _other_user() -> tuple[int | None, int | None]:
    """Whom the server runs as; None: ourselves."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return None, None
    import pwd  # noqa: PLC0415 - needs Unix

    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError as error:
        raise ServerUnavailableError(
            "database servers refuse root, and there is no user 'nobody'"
        ) from error
    return nobody.pw_uid, nobody.pw_gid
