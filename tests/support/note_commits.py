"""A trigger that notes with which ``synchronous_commit`` the entries of a store are changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.durable.store.postgres import PostgresStore

_NOTED = """
CREATE FUNCTION {s}.note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
    INSERT INTO {s}.facts VALUES (TG_OP, current_setting('synchronous_commit'))
        ON CONFLICT (name) DO UPDATE SET value = {s}.facts.value || ' ' || excluded.value;
    RETURN NULL;
END$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {s}.entries FOR EACH ROW EXECUTE FUNCTION {s}.note();
"""


async def note_commits(store: PostgresStore) -> None:
    """Make the trigger; what it notes is a fact named INSERT, UPDATE or DELETE."""
    await store.ask(
        lambda connection: connection.execute(_NOTED.replace("{s}", store.schema))
    )
