"""Traces, metrics and structured logs: a service that makes thumbnails, watched."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio
from _main import main
from opentelemetry.trace import TracerProvider
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server

from inboxkit import (
    Broker,
    Database,
    Delivery,
    Inbox,
    InboxQueue,
    Outcome,
    Service,
    ack,
    drop,
    role,
    subscriber,
)
from inboxkit.contrib.opentelemetry import instrument
from inboxkit.contrib.prometheus import PrometheusMetrics

log = logging.getLogger("thumbnails")


class MakeThumbnail(Inbox, table="thumbnail_jobs"):
    """A picture to shrink; ``headers`` carry the trace of the request that asked for it."""

    id: int = role.id(generated=True)
    name: str = role.group()
    attempt: int = role.attempt(generated=True)
    retry_after: datetime | None = role.retry_after(default=None)
    locked_until: datetime | None = role.locked_until()
    headers: dict[str, str] = role.headers(default_factory=dict)
    payload: bytes = role.payload()


@dataclass
class Picture:
    path: str


PICTURES = InboxQueue(MakeThumbnail, "pictures", Picture)


@subscriber(PICTURES)
async def shrink(picture: Picture, delivery: Delivery) -> Outcome:
    if picture.path.endswith(".txt"):
        return drop("no picture")
    if picture.path.endswith(".broken"):
        raise ValueError("the picture ends too early")
    await anyio.sleep(0.01)  # stands for the work
    return ack()


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON, with the row that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"level": record.levelname, "message": record.getMessage()}
        for name in ("queue", "row_id", "attempt", "group"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        return json.dumps(line, default=str)


SCHEMA = {
    "sqlite": [
        """CREATE TABLE IF NOT EXISTS thumbnail_jobs (
            id           INTEGER PRIMARY KEY,
            name         TEXT NOT NULL,
            attempt      INTEGER NOT NULL DEFAULT 1,
            retry_after  TEXT,
            locked_until TEXT,
            headers      TEXT NOT NULL,
            payload      BLOB NOT NULL
        )""",
        "CREATE INDEX IF NOT EXISTS thumbnail_jobs_order ON thumbnail_jobs (name, retry_after, id)",
    ],
    "postgres": [
        """CREATE TABLE IF NOT EXISTS thumbnail_jobs (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name         text NOT NULL,
            attempt      integer NOT NULL DEFAULT 1,
            retry_after  timestamptz,
            locked_until timestamptz,
            headers      jsonb NOT NULL,
            payload      bytea NOT NULL
        )""",
        "CREATE INDEX IF NOT EXISTS thumbnail_jobs_order ON thumbnail_jobs (name, retry_after, id)",
    ],
    "mysql": [
        """CREATE TABLE IF NOT EXISTS thumbnail_jobs (
            id           bigint AUTO_INCREMENT PRIMARY KEY,
            name         varchar(100) NOT NULL,
            attempt      int NOT NULL DEFAULT 1,
            retry_after  datetime(6),
            locked_until datetime(6),
            headers      json NOT NULL,
            payload      longblob NOT NULL,
            KEY thumbnail_jobs_order (name, locked_until, retry_after, id)
        )""",
    ],
}


async def create_schema(db: Database) -> None:
    for statement in SCHEMA[db.dialect]:
        await db.execute(statement)


def service(
    database: Database | str,
    registry: CollectorRegistry = REGISTRY,
    tracer_provider: TracerProvider | None = None,
) -> Service:
    app = Service("thumbnails", Broker(database))
    app.on_startup(create_schema)
    PrometheusMetrics(registry).observe(app, interval=timedelta(seconds=10))
    instrument(app, tracer_provider=tracer_provider, interval=None)  # the gauges are Prometheus'
    app.include(shrink, max_attempts=3, dead_letter="pictures.dead")
    return app


async def publish(broker: Broker, number: int) -> None:
    kind = ("png", "png", "txt", "png")[number % 4]
    await broker.publish(PICTURES, Picture(f"picture-{number}.{kind}"))


if __name__ == "__main__":
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    server, _ = start_http_server(int(os.environ.get("METRICS_PORT", "0")))
    log.info("metrics at http://localhost:%d/metrics", server.server_port)
    main(service, "sqlite:///thumbnails.db", publish)
