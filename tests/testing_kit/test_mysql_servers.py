"""A throw-away MariaDB and MySQL: whom they let in, fresh databases, and their end."""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

import pymysql
import pytest

from inboxkit._db.mysql_url import read_target
from inboxkit_testing.servers import (
    MysqlServer,
    ServerUnavailableError,
    _mysql,
    mariadb_server,
    mysql_server,
)


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> MysqlServer:
    found: MysqlServer = request.getfixturevalue(f"inbox_{request.param}")
    return found


def session(url: str, **other: Any) -> Any:
    target = read_target("mysql" + url[url.index(":") :])
    settings = {"host": target.host, "port": target.port, "unix_socket": target.socket}
    account = {"user": target.user, "password": target.password, "database": target.database}
    return pymysql.connect(**{**settings, **account, **other})


def test_databases_are_fresh_and_dropped_also_with_open_sessions(server: MysqlServer) -> None:
    with server.database() as one, server.database() as two:
        assert one != two
        assert one.startswith(f"{server.kind}://")
        with session(one) as open_session:
            open_session.query("CREATE TABLE only_here (id int)")
            open_session.query("SELECT * FROM only_here")  # holds the table's definition
            server.drop_database(one)
            with pytest.raises(pymysql.err.OperationalError):
                open_session.query("SELECT 1")
        with session(two) as other, pytest.raises(pymysql.err.ProgrammingError):
            other.query("SELECT * FROM only_here")
    with pytest.raises(pymysql.err.OperationalError, match="Unknown database"):
        session(two)


def test_a_session_that_has_ended_is_none_to_end_also_for_a_driver_imported_anew(
    server: MysqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where tests run inside of tests."""
    with server.database():  # it has a connection by now
        for name in [name for name in sys.modules if name.partition(".")[0] == "pymysql"]:
            monkeypatch.delitem(sys.modules, name)
        assert server._execute("KILL 4294967295", may_miss=True) == []


def test_only_the_password_lets_in(server: MysqlServer) -> None:
    if server.folder is None:
        pytest.skip("the server is not ours")
    for user in ("inboxkit", "root", ""):
        for place in ({}, {"unix_socket": str(server.folder / "socket" / "s")}):
            with pytest.raises(pymysql.err.OperationalError, match=r"(?i)access denied"):
                session(server.url, user=user, password="", **place)
    assert read_target(server.url).password not in repr(server)
    with server.database() as url, session(server.socket_url(url)) as through_socket:
        through_socket.query("SELECT 1")


def test_its_temporary_files_are_its_own(server: MysqlServer) -> None:
    """A MariaDB that starts removes those of others in its folder."""
    if server.folder is None:
        pytest.skip("the server is not ours")
    with server.database() as url, session(url) as open_session:
        cursor = open_session.cursor()
        cursor.execute("SELECT @@tmpdir")
        assert cursor.fetchall() == ((str(server.folder / "temporary"),),)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits by pidfd")
def test_it_is_shared_by_name_and_ends_with_its_last_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_mysql.MARIADB_URL_VARIABLE, raising=False)
    with mariadb_server("its end") as first:
        with mariadb_server("its end") as second:
            assert first.url == second.url
        folder = first.folder
        assert folder is not None
        facts = json.loads((folder / "server.json").read_text())
        watched = [os.pidfd_open(facts[name]) for name in ("server", "supervisor")]
    for each in watched:
        assert select.select([each], [], [], 10)[0]
        os.close(each)
    assert not folder.exists()
    assert not (folder / "data").exists()


def test_its_absence_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (_mysql.MARIADB_URL_VARIABLE, _mysql.MYSQL_URL_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(_mysql.MYSQL_FOLDER_VARIABLE, "/missing")
    monkeypatch.setattr(_mysql, "_program", lambda name: None)
    with pytest.raises(
        ServerUnavailableError, match=r"install mariadb-server, or name .*_MARIADB_"
    ):
        mariadb_server("absent")
    with pytest.raises(ServerUnavailableError, match=r"/missing; run \.ci/mysql .*_MYSQL_URL"):
        mysql_server("absent")
    monkeypatch.setattr(_mysql, "_program", lambda name: "/bin/echo")
    monkeypatch.setattr(_mysql, "_is_mariadb", lambda program: False)
    with pytest.raises(ServerUnavailableError, match="MySQL did not start"):
        mysql_server("absent")


def test_a_variable_names_a_server(server: MysqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    make, variable = {
        "mariadb": (mariadb_server, _mysql.MARIADB_URL_VARIABLE),
        "mysql": (mysql_server, _mysql.MYSQL_URL_VARIABLE),
    }[server.kind]
    monkeypatch.setenv(variable, server.url)
    with make() as named, named.database() as url, session(url) as open_session:
        assert named.folder is None
        open_session.query("SELECT 1")


def test_a_durable_one_keeps_what_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_mysql.MARIADB_URL_VARIABLE, raising=False)
    with mariadb_server("kept", durable=True) as server, session(server.url) as open_session:
        assert server.folder is not None
        data = server.folder / "data"
        assert data.resolve() == data.absolute()  # on the disk, not a link to memory
        cursor = open_session.cursor()
        cursor.execute("SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite")
        assert cursor.fetchall() == ((1, 1),)
