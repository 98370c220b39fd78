"""Connections of synchronous applications, each with functions that begin a transaction and a savepoint."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager

import django
import psycopg
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.outbox.conftest import dict_row
from tests.support.database import database

if not settings.configured:  # as the tests of receivers do
    csrf = "django.middleware.csrf.CsrfViewMiddleware"
    settings.configure(
        ROOT_URLCONF="urls_of_the_test", MIDDLEWARE=[csrf], ALLOWED_HOSTS=["*"]
    )
    django.setup()


@contextmanager
def of_psycopg(_path, **given):
    with psycopg.connect(database().address, **given) as made:
        yield made, made.transaction, made.transaction


@contextmanager
def of_engine(url, **given):
    engine = create_engine(url, poolclass=NullPool, **given)
    yield engine
    engine.dispose()


def url_of(path):
    if path is not None:
        return f"sqlite:///{path}"
    return database().address.replace("postgresql", "postgresql+psycopg", 1)


@contextmanager
def of_session(path, **given):
    with of_engine(url_of(path), **given) as engine, Session(engine) as made:
        yield made, made.begin, made.begin_nested


@contextmanager
def of_scoped_session(path):
    with of_engine(url_of(path)) as engine:
        made = scoped_session(sessionmaker(engine))
        yield made, made.begin, made.begin_nested
        made.remove()


@contextmanager
def of_connection(path, **given):
    with of_engine(url_of(path), **given) as engine, engine.connect() as made:
        yield made, made.begin, made.begin_nested


@contextmanager
def of_django(path):
    """Give ``django.db.connection``, or that of another alias."""
    if path is None:
        parts = psycopg.conninfo.conninfo_to_dict(database().address)
        names = {
            "HOST": "host",
            "PORT": "port",
            "NAME": "dbname",
            "USER": "user",
            "PASSWORD": "password",
        }
        where = {name: parts.get(part) or "" for name, part in names.items()}
        where["ENGINE"] = "django.db.backends.postgresql"
    else:
        where = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    vars(connections)["settings"] = connections.configure_settings({"default": where})
    try:
        yield django.db.connection, transaction.atomic, transaction.atomic
    finally:
        connections.close_all()
        del connections["default"]


@contextmanager
def of_sqlite3(path, rows=None, texts=str):
    made = sqlite3.connect(path, isolation_level=None)
    made.row_factory, made.text_factory = rows, texts

    @contextmanager
    def between(begin, end, undo):
        made.execute(begin)
        try:
            yield
        except BaseException:
            made.execute(undo)
            raise
        made.execute(end)

    yield (
        made,
        lambda: between("BEGIN", "COMMIT", "ROLLBACK"),
        lambda: between("SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"),
    )
    made.close()


POSTGRES = {
    "psycopg": of_psycopg,
    "psycopg's raw cursors": lambda path: of_psycopg(
        path, cursor_factory=psycopg.RawCursor
    ),
    "psycopg with rows as dicts": lambda path: of_psycopg(
        path, row_factory=psycopg.rows.dict_row
    ),
    "Session": of_session,
    "scoped session": of_scoped_session,
    "Connection of SQLAlchemy": of_connection,
    "Django": of_django,
}
SQLITE = {
    "sqlite3": of_sqlite3,
    "sqlite3 with rows as dicts": lambda path: of_sqlite3(path, rows=dict_row),
    "sqlite3 with texts as bytes": lambda path: of_sqlite3(path, texts=bytes),
    "Session": of_session,
    "Connection of SQLAlchemy": of_connection,
    "Django": of_django,
}
