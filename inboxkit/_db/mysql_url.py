"""Reads the URL of a MariaDB or MySQL database."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["MysqlTarget", "read_target"]

_OPTIONS: Final = ("charset", "host", "ssl_ca", "ssl_mode", "unix_socket")
_SSL_MODES: Final = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")


@dataclass(frozen=True, slots=True)
class MysqlTarget:
    """Where a server is, and as whom to connect."""

    host: str
    port: int
    user: str | None
    """None: the name of this process's user."""
    password: str = field(repr=False)
    database: str | None
    socket: str | None
    """The path of a Unix socket, in place of host and port."""
    ssl_mode: str
    ssl_ca: str | None

    @property
    def shown(self) -> str:
        """The server's place, for messages."""
        return f"the socket {self.socket}" if self.socket else f"{self.host}:{self.port}"

    def ssl_context(self) -> ssl.SSLContext | None:
        """How the connection is encrypted; None: not at all."""
        if self.ssl_mode == "DISABLED" or self.socket is not None:
            return None
        context = ssl.create_default_context(cafile=self.ssl_ca)
        context.check_hostname = self.ssl_mode == "VERIFY_IDENTITY"
        if self.ssl_mode == "REQUIRED":
            context.verify_mode = ssl.CERT_NONE
        return context


def read_target(url: str) -> MysqlTarget:
    """Read ``mysql://user:password@host:port/database?option=value``.

    Raises:
        ValueError: It is none; the message does not show the password.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or 3306
    except ValueError:
        raise ValueError("the port is no number from 1 to 65535") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(f"unknown option {name!r}; the options are {', '.join(_OPTIONS)}")
    if options.get("charset", "utf8mb4") != "utf8mb4":
        raise ValueError("charset is always utf8mb4; leave it out")
    host = options.get("host") or unquote(parts.hostname or "") or "localhost"
    socket = options.get("unix_socket") or (host if host.startswith("/") else None)
    ssl_ca = options.get("ssl_ca") or None
    ssl_mode = options.get("ssl_mode", "VERIFY_CA" if ssl_ca else "DISABLED").upper()
    if ssl_mode not in _SSL_MODES:
        raise ValueError(f"ssl_mode must be one of {', '.join(_SSL_MODES)}")
    return MysqlTarget(
        host=host,
        port=port,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or ""),
        database=unquote(parts.path.lstrip("/")) or None,
        socket=socket,
        ssl_mode=ssl_mode,
        ssl_ca=ssl_ca,
    )
