"""``module:attribute``: what it may name, and where the URL comes from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, Mail, factory, lease_spec

from inboxkit import InboxQueue, Service
from inboxkit._cli.loading import load_service

URL = "sqlite:///given.db"
make = factory(InboxQueue(lease_spec("jobs"), "mails", Mail), control=False)


def shown(service: Service) -> str:
    return repr(service.broker.database)


def test_a_service_is_taken_as_it_is(cli: Cli) -> None:
    app = make(URL)
    assert load_service(f"{cli.module(app=app)}:app", None) is app


def test_a_url_with_a_service_is_a_mistake(cli: Cli) -> None:
    name = cli.module(app=make(URL))
    text = cli.run("check", f"{name}:app", "--url", URL, status=2).stderr
    assert "is a Service and has its database already; leave --url out" in text


def test_a_function_of_the_url_gets_the_command_lines_before_the_environments(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{cli.module(make=make)}:make"
    monkeypatch.setenv("INBOXKIT_URL", "sqlite:///environment.db")
    assert shown(load_service(name, None)) == "<Database sqlite:///environment.db>"
    assert shown(load_service(name, URL)) == f"<Database {URL}>"


def test_without_a_url_both_places_are_named(cli: Cli) -> None:
    text = cli.run("check", f"{cli.module(make=make)}:make", status=2).stderr
    assert "give --url, or set $INBOXKIT_URL" in text


def test_an_empty_url_counts_as_given(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{cli.module(make=make)}:make"
    monkeypatch.setenv("INBOXKIT_URL", URL)
    assert (
        "--url: '' is not a database's URL" in cli.run("check", name, "--url", "", status=2).stderr
    )
    monkeypatch.setenv("INBOXKIT_URL", "")
    assert "$INBOXKIT_URL: '' is not" in cli.run("check", name, status=2).stderr


def test_code_goes_before_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def service(url: str = "sqlite:///code.db") -> Service:
        return make(url)

    name = f"{cli.module(service=service)}:service"
    monkeypatch.setenv("INBOXKIT_URL", "sqlite:///environment.db")
    assert shown(load_service(name, None)) == "<Database sqlite:///code.db>"
    assert shown(load_service(name, URL)) == f"<Database {URL}>"


def test_a_function_without_parameters_is_called_and_takes_no_url(cli: Cli) -> None:
    def service() -> Service:
        return make(URL)

    def loose(**settings: Any) -> Service:
        return make(URL)

    name = cli.module(service=service, loose=loose)
    assert shown(load_service(f"{name}:service", None)) == f"<Database {URL}>"
    assert shown(load_service(f"{name}:loose", None)) == f"<Database {URL}>"
    for attribute in ("service", "loose"):
        text = cli.run("check", f"{name}:{attribute}", "--url", URL, status=2).stderr
        assert "takes no URL; leave --url out" in text


def test_without_an_attribute_service_goes_before_app(cli: Cli) -> None:
    one, two = make("sqlite:///one.db"), make("sqlite:///two.db")
    assert load_service(cli.module(service=one, app=two), None) is one
    assert load_service(cli.module(app=two), None) is two
    text = cli.run("check", cli.module(other=one), status=2).stderr
    assert "has neither service nor app; name the attribute" in text


def test_an_attribute_may_lie_deeper(cli: Cli) -> None:
    class Apps:
        mailer = make(URL)

    assert load_service(f"{cli.module(Apps=Apps)}:Apps.mailer", None) is Apps.mailer


def two(url: str, lease: int) -> Service:
    raise AssertionError


def keyword(*, url: str) -> Service:
    raise AssertionError


async def later(url: str) -> Service:
    raise AssertionError


WRONG: dict[str, tuple[Any, str]] = {
    "a number": (7, "is of type int; expected a Service, or a function that returns one"),
    "two parameters": (two, "takes url, lease; expected a function of one parameter"),
    "a keyword parameter": (keyword, "takes url; expected a function of one parameter"),
    "an async function": (later, "is an async function; write def: nothing connects in it"),
    "something else returned": (lambda: "app", "returned str; expected a Service"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_names_no_service(case: str, cli: Cli) -> None:
    thing, text = WRONG[case]
    arguments = ["--url", URL] if case in ("a keyword parameter", "an async function") else []
    assert text in cli.run("check", f"{cli.module(x=thing)}:x", *arguments, status=2).stderr


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            "nowhere_to_be_found:app",
            "no module is called 'nowhere_to_be_found', neither installed nor",
        ),
        ("json.py:app", "a module is named without .py: json"),
        ("json.nowhere:app", "no module is called 'json.nowhere'"),
        ("json:nothing", "module 'json' has no attribute 'nothing'"),
        ("json:", "names no service; write module:attribute"),
        (":app", "names no service"),
        ("..json:app", "names no service"),
    ],
)
def test_what_cannot_be_found(target: str, text: str, cli: Cli) -> None:
    assert text in cli.run("check", target, status=2).stderr


BROKEN = {
    "raises": ("def f():\n    raise KeyError('shop')\n\nf()\n", "KeyError: 'shop' (", "line 2)"),
    "does not parse": ("def f(:\n", "SyntaxError: invalid syntax", "line 1)"),
    "lacks a module": ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found'", ""),
    "exits": ("import sys\nsys.exit(3)\n", "asked to exit (3); guard it by __name__", ""),
    "declares wrongly": (
        "from inboxkit import *\nclass Jobs(Inbox, table='jobs'): pass\n",
        "importing broken",
        "id",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_module_that_cannot_be_imported_is_told_in_a_line(
    case: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, *texts = BROKEN[case]
    name = f"broken_{case.replace(' ', '_')}"
    (tmp_path / f"{name}.py").write_text(code)
    result = cli.run("check", name, status=1)
    assert all(text in result.stderr for text in texts), result.stderr
    sys.modules.pop(name, None)


def test_a_factory_that_fails_is_told_in_a_line(cli: Cli) -> None:
    def service(url: str) -> Service:
        return make(url[:0])

    def broken() -> Service:
        raise ZeroDivisionError("x")

    name = cli.module(service=service, broken=broken)
    text = cli.run("check", f"{name}:service", "--url", URL, status=1).stderr
    assert text.startswith(f"inboxkit: {name}:service(): '' is not a database's URL")
    text = cli.run("check", f"{name}:broken", status=1).stderr
    assert f"{name}:broken() failed: ZeroDivisionError: x ({__file__}, line " in text


def test_the_working_directory_is_on_the_path(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "found_here.py").write_text(
        "from inboxkit import Broker, Service\napp = Service('found', Broker('sqlite:///x.db'))\n"
    )
    assert load_service("found_here", None).name == "found"
    sys.modules.pop("found_here", None)


SECRET = "hunter2"
SECRETS = {
    "a server that is not there": f"postgresql://me:{SECRET}@127.0.0.1:1/db",
    "a MariaDB server that is not there": f"mariadb://me:{SECRET}@127.0.0.1:1/db",
    "a password in the query": f"postgresql://127.0.0.1:1/db?user=me&password={SECRET}",
}
WRONG_SECRETS = {
    "no URL at all": f"nothing://me:{SECRET}@host/db",
    "a wrong port": f"postgresql://me:{SECRET}@host:port/db",
    "a colon too many": f"mysql://me:{SECRET}@host:1:2/db",
}


@pytest.mark.parametrize("case", WRONG_SECRETS)
def test_passwords_of_wrong_urls_are_never_printed(case: str, cli: Cli) -> None:
    name = f"{cli.module(make=make)}:make"
    result = cli.run("check", name, "--url", WRONG_SECRETS[case], status=2)
    assert SECRET not in result.output
    assert result.stderr


@pytest.mark.parametrize("case", SECRETS)
@pytest.mark.parametrize("command", [("check",), ("stats", "--json"), ("run",), ("dead", "list")])
def test_passwords_are_never_printed(case: str, command: tuple[str, ...], cli: Cli) -> None:
    name = f"{cli.module(make=make)}:make"
    result = cli.run(*command, name, "--url", SECRETS[case], status=1)
    assert SECRET not in result.output
    assert result.stderr


def test_an_error_of_the_users_code_does_not_show_a_password(cli: Cli) -> None:
    def service(url: str) -> Service:
        raise RuntimeError(f"cannot use {url}")

    url = f"postgresql://me:{SECRET}@host/db?sslpassword={SECRET}"
    result = cli.run("check", f"{cli.module(service=service)}", "--url", url, status=1)
    assert SECRET not in result.output
    assert "postgresql://me:***@host/db" in result.stderr
