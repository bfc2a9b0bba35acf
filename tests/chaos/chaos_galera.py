"""A MariaDB Galera cluster of a test's own: nodes on this machine, each of which takes writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from chaos_servers import OwnServer, own_folder, own_mysql
from chaos_sql import LOST, Outside

from inboxkit_testing.servers import _supervisor

__all__ = ["Cluster", "cluster"]

_PROVIDERS = (
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/lib/libgalera_smm.so",
)


class _Node(_supervisor.Mysql):
    """A server that belongs to a cluster once `joins` says whom it asks; before that, a server by itself."""

    ports: tuple[int, int, int]
    """Of the group's messages, of what a node has missed, and of a whole copy."""
    joins: tuple[int, ...] | None = None
    """The first ports of the others; empty: it makes the cluster."""
    has_accounts = False
    provider = ""

    def options(self) -> list[tuple[str, str]]:
        left_out = {"innodb-flush-log-at-trx-commit", "innodb-doublewrite"}
        return [
            *((name, value) for name, value in super().options() if name not in left_out),
            ("innodb-flush-log-at-trx-commit", "2"),
        ]

    def command(self, port: int) -> list[str]:
        made = super().command(port)
        if self.has_accounts:  # they are made once, or copied
            made = [option for option in made if not option.startswith("--init-file=")]
        if self.joins is None:
            return made
        group, missed, copy = (f"127.0.0.1:{one}" for one in self.ports)
        listening = f"gmcast.listen_addr=tcp://{group};ist.recv_addr={missed};gcache.size=32M"
        settings = {
            "binlog-format": "ROW",
            "innodb-autoinc-lock-mode": "2",
            "wsrep-on": "ON",
            "wsrep-provider": self.provider,
            "wsrep-provider-options": f"base_port={self.ports[0]};{listening}",
            "wsrep-cluster-name": self.folder.parent.name,
            "wsrep-cluster-address": "gcomm://"
            + ",".join(f"127.0.0.1:{one}" for one in self.joins),
            "wsrep-node-address": group,
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": copy,
        }
        new = [] if self.joins else ["--wsrep-new-cluster"]
        return [*made, *(f"--{name}={value}" for name, value in settings.items()), *new]


class Cluster:
    """Nodes that are started, killed and join again.

    Attributes:
        nodes: All of them.
    """

    def __init__(self, nodes: list[OwnServer]) -> None:
        self.nodes = nodes
        self._up: set[int] = set()
        self._counted: dict[str, int] = {}

    @property
    def urls(self) -> list[str]:
        """Of the nodes, in order."""
        return [node.url for node in self.nodes]

    def url(self) -> str:
        """Of a node that runs."""
        return self.nodes[min(self._up)].url

    def start(self) -> None:
        """Make the cluster: accounts and a database on the first node, which the others copy."""
        first = self.nodes[0]
        first.supervisor.make_data()
        first.start()
        with Outside(first.url.removesuffix("chaos")) as outside:
            outside.run("CREATE DATABASE chaos CHARACTER SET utf8mb4")
        first.stop("fast")
        for number, node in enumerate(self.nodes):
            if number:
                node.supervisor.make_folders()
            _settings(node).has_accounts = True
            self.join(number)

    def join(self, number: int, seconds: float = 120.0) -> float:
        """Start a node, and return how many seconds it took until it took statements."""
        others = sorted(self._up - {number})
        node = self.nodes[number]
        _settings(node).joins = tuple(_settings(self.nodes[one]).ports[0] for one in others)
        begun = time.monotonic()
        node.start()
        while not self._is_synced(number, len(others) + 1):
            took = time.monotonic() - begun
            assert took < seconds, f"node {number} has not joined after {took:.0f} s:\n{node.log()}"
            time.sleep(0.05)
        self._up.add(number)
        return time.monotonic() - begun

    def kill(self, number: int) -> None:
        """End a node at once, as a machine ends whose power is cut."""
        self._note(number)
        self._up.remove(number)
        self.nodes[number].stop("crash")

    def conflicts(self) -> dict[str, int]:
        """Transactions refused at their COMMIT, and ended before it, because another node's came first."""
        for number in self._up:
            self._note(number)
        counted, self._counted = self._counted, {}
        return counted

    def _note(self, number: int) -> None:
        names = {"wsrep_local_cert_failures": "refused", "wsrep_local_bf_aborts": "ended"}
        with Outside(self.nodes[number].url) as outside:
            for name, value in outside.run("SHOW STATUS LIKE 'wsrep_local_%'"):
                if kind := names.get(name):
                    self._counted[kind] = self._counted.get(kind, 0) + int(value)

    def _is_synced(self, number: int, size: int) -> bool:
        try:
            with Outside(self.nodes[number].url) as outside:
                status = dict(outside.run("SHOW STATUS LIKE 'wsrep_%'"))
        except LOST:
            return False
        state = status["wsrep_local_state_comment"], status["wsrep_ready"]
        return state == ("Synced", "ON") and int(status["wsrep_cluster_size"]) == size


@contextmanager
def cluster(size: int) -> Iterator[Cluster]:
    """A cluster with an empty database; skips the test where Galera's library is not here.

    Raises:
        ServerUnavailableError: MariaDB's programs are not here.
    """
    provider = next((path for path in _PROVIDERS if Path(path).exists()), None)
    if provider is None:
        pytest.skip("Galera's library is not here: install galera-4 and rsync")
    with ExitStack() as stack:
        nodes: list[OwnServer] = []
        password: str | None = None
        for _ in range(size):
            folder = stack.enter_context(own_folder("mariadb"))
            node = own_mysql("mariadb", folder, _Node, password=password)
            stack.callback(node.close)
            password = node.supervisor.password
            settings = _settings(node)
            settings.provider = provider
            group, missed, copy = (_supervisor.free_port() for _ in range(3))
            settings.ports = group, missed, copy
            nodes.append(node)
        made = Cluster(nodes)
        made.start()
        yield made


def _settings(node: OwnServer) -> _Node:
    assert isinstance(node.supervisor, _Node)
    return node.supervisor
