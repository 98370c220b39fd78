"""
The journal of a batch in PostgreSQL, which machines share.

Entries are stored in chunks, which are then queued.  ``chunk_fencing`` decides who may update a chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from invsvc_async.batch.journals.chunk_queue import QUEUED, SIGNAL, Chunks
from invsvc_async.batch.journals.chunk_workers import WorkersOfBatch
from invsvc_async.batch.journals.postgres_runs import OwnedResults, save_checkpoint
from invsvc_async.batch.journals.postgres_schema import IN_TURN
from invsvc_async.batch.restored import kept_in_doubt
from invsvc_async.batch.result import Summary
from invsvc_async.batch.seen_keys import Met
from invsvc_async.durable.entry import Mark, State, entry_of
from invsvc_async.durable.intents import Packed, not_overtaken
from invsvc_async.durable.last_writes import LastWrite
from invsvc_async.durable.restored import FACT, closed, last_of
from invsvc_async.durable.scripts import without_sends
from invsvc_async.errors import InvalidRequestError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.slices import slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.batch.checkpoint import Checkpoint
from invsvc_async.durable.entry import Entry

__all__ = ["PostgresBatch"]

# An entry without a chunk goes into the new one.  All who insert do so in turn, so this sees all that others
# have inserted; it does not see what it inserts itself.
_HAND_OUT = f"""
WITH fresh AS (INSERT INTO chunks DEFAULT VALUES RETURNING id), given AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[], $5::smallint[], $6::int[],
        $7::text[], $8::bigint[], $9::text[])
    AS t (key, chunk, thing, content, state, run, operation, common, intent)
), stored AS (
    INSERT INTO entries (key, chunk, thing, content, state, run, operation, common, intent)
    SELECT key, coalesce(chunk, (SELECT id FROM fresh)), thing, content, state, run, operation, common, intent
    FROM given ON CONFLICT (key) DO NOTHING RETURNING 1
), reading AS (UPDATE runs SET has_open_input = true WHERE run = $10 AND NOT has_open_input)
SELECT id, 1 + (SELECT count(*) FROM chunks WHERE NOT done) AS open,
    CASE WHEN (SELECT count(*) FROM stored) < (SELECT count(*) FROM given) THEN
        ARRAY(SELECT key FROM given JOIN entries e USING (key) WHERE e.content <> given.content)
    END AS others, ({SIGNAL.format(QUEUED)}) FROM fresh
"""  # noqa: S608 - our own text
# $1: verdicts; $2 and $3: the part of the order, after one entry and up to another.
_TO_REOPEN = """
SELECT e.* FROM unnest($1::text[]) AS chosen, LATERAL (
    SELECT seq, thing, key, common, intent, verdict FROM entries
    WHERE verdict = chosen AND verdict <> 'applied' AND state = 2 AND intent IS NOT NULL
        AND seq > $2 AND seq <= $3 ORDER BY verdict, seq LIMIT $4
) AS e ORDER BY seq LIMIT $4
"""
_THESE_TO_REOPEN = """
SELECT seq, thing, key, common, intent, verdict FROM entries WHERE key = ANY ($2) AND verdict = ANY ($1)
    AND verdict <> 'applied' AND state = 2 AND intent IS NOT NULL ORDER BY seq
"""
_REOPEN = """
WITH given AS MATERIALIZED (
    SELECT seq, coalesce(chunk, $5) AS chunk, intent,
        CASE WHEN $4 THEN nextval('entries_seq_seq') ELSE seq END AS place
    FROM (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[]) WITH ORDINALITY
        AS t (seq, chunk, intent, number) ORDER BY number) AS t
)
UPDATE entries e SET seq = g.place, state = 0, verdict = NULL, outcome = NULL,
    done_at = NULL, chunk = g.chunk, intent = g.intent FROM given g WHERE e.seq = g.seq
"""
_COMMONS = "SELECT number, text FROM commons"
_RESTORED = f"SELECT value FROM facts WHERE name = '{FACT}'"  # noqa: S608 - our own text
_AT_ONCE = 200  # entries reopened together: as many as a new chunk has
_BUSY = "SELECT thing, min(chunk) FROM entries WHERE thing = ANY ($1) AND done_at IS NULL GROUP BY thing"

# $1: done before; $2 and $3: the part of the table, after one row and up to another.
# An unknown write keeps what settles it.
_PRUNE = """
UPDATE entries SET intent = NULL, outcome = NULL, claim = NULL
WHERE seq > $2 AND seq <= $3 AND state = 2 AND done_at < $1 AND verdict <> 'unknown'
    AND (intent IS NOT NULL OR outcome IS NOT NULL)
RETURNING seq
"""
# A row that is locked is being replaced by a newer state, which stays.
_PRUNE_STATES = """
UPDATE states SET team = NULL, state = NULL, stamp = NULL WHERE thing IN (
    SELECT s.thing FROM states s JOIN entries e ON e.seq = s.seq AND e.done_at < $1
    WHERE s.thing > $2 AND s.thing <= $3 AND s.state IS NOT NULL FOR UPDATE OF s SKIP LOCKED)
"""
_LAST_ENTRY = """
SELECT max(seq) FROM (SELECT seq FROM entries WHERE seq > $1 ORDER BY seq LIMIT $2) AS part
"""
_LAST_STATE = """
SELECT max(thing) FROM (SELECT thing FROM states WHERE thing > $1 ORDER BY thing LIMIT $2) AS part
"""
# The counts that were appended become few again. Who folds others at the same time skips them.
_FOLD = """
WITH few AS (SELECT id FROM counts ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM counts USING few WHERE counts.id = few.id
    RETURNING state, verdict, lost, overtaken, many)
INSERT INTO counts (state, verdict, lost, overtaken, many)
SELECT state, verdict, lost, overtaken, sum(many) FROM gone GROUP BY 1, 2, 3, 4 HAVING sum(many) <> 0
"""
_FEW = 500  # counts that are not worth a fold
_LOOKED_AT = 5000  # rows that one transaction of a prune looks at


class PostgresBatch(OwnedResults, WorkersOfBatch):
    """The journal of a shared batch: one schema of one database."""

    def __init__(self, address: str, *, create: bool = True) -> None:
        super().__init__(address, create=create)
        self._met: Met | None = None

    async def open(self) -> None:
        """
        Connect, and create the tables if they do not exist.

        Raises:
            JournalError: The database cannot be used, or the journal is of a newer version.

        """
        await super().open()
        self.chunks: Chunks = Chunks(self.lent, slots=self.settings.slots, silence=self.settings.silence)

    async def aclose(self) -> None:
        """Store everything and disconnect."""
        self._forget()
        await super().aclose()

    # --- chunks

    async def hand_out(
        self, given: list[tuple[Entry, str | None]], checkpoint: Checkpoint | None = None
    ) -> int:
        """
        Store new entries, each with the thing that it writes to, and queue them as one chunk.

        Store with them how far their file was read, if it was a file, and that the input is open: another run
        may have closed it while this one was silent. Return how many chunks are open then.

        An entry that another machine has already stored, from the same input, stays as it is.

        Raises:
            InvalidRequestError: Another machine has stored a different write under one of the keys.

        """
        await self._store_commons()
        entries = [entry for entry, _ in given]

        async def hand_out(connection: Any) -> int:
            await connection.execute(IN_TURN)
            things = [thing for _, thing in given]
            row = await connection.fetchrow(
                _HAND_OUT,
                [entry.key for entry in entries], await self._chosen(connection, things), things,
                [entry.content for entry in entries], [int(entry.state) for entry in entries],
                [entry.run for entry in entries], [entry.operation for entry in entries],
                [entry.common for entry in entries], [entry.intent for entry in entries], self.input_of,
            )  # fmt: skip
            if row["others"]:
                _refuse([entry.key for entry in entries if entry.key in row["others"]])
            await self.chunks.give(connection, row["id"])
            await save_checkpoint(connection, checkpoint)
            return int(row["open"])

        return await self.ask(hand_out)

    async def _chosen(self, connection: Any, things: Sequence[str | None]) -> list[int | None]:
        """
        Choose a chunk for each: the open chunk of its thing, if any, so that their order is kept.

        ``None`` stands for a new chunk.
        """
        touched = list({thing for thing in things if thing is not None})
        if not touched:
            return []
        busy = dict(await connection.fetch(_BUSY, touched))
        text = "SELECT id FROM chunks WHERE id = ANY ($1) AND NOT done ORDER BY id FOR SHARE"
        alive = {row["id"] for row in await connection.fetch(text, list(set(busy.values())))}
        places: dict[str | None, int] = {thing: place for thing, place in busy.items() if place in alive}
        return [places.get(thing) for thing in things]

    async def of_chunk(self, chunk: int) -> list[Entry]:
        """Return the entries of *chunk* that are not done, in order."""
        return await self._entries("chunk = $1 AND done_at IS NULL ORDER BY seq", chunk)

    # --- as the protocol

    async def fact(self, name: str, value: str | None = None) -> str | None:
        """Return a fact about the whole batch; set it to *value* first if it is unknown."""

        async def fact(connection: Any) -> str | None:
            if value is not None:
                await connection.execute(
                    "INSERT INTO facts VALUES ($1, $2) ON CONFLICT DO NOTHING", name, value
                )
            found: str | None = await connection.fetchval("SELECT value FROM facts WHERE name = $1", name)
            return found

        return await self.ask(fact)

    async def facts(self, prefix: str) -> dict[str, str]:
        """Return the facts whose names begin with *prefix*."""
        rows = await self.fetch("SELECT name, value FROM facts WHERE starts_with(name, $1)", prefix)
        return {row["name"]: row["value"] for row in rows}

    async def close_restored(self) -> None:
        """Note that the input was read again since the journal was restored."""

        async def close(connection: Any) -> None:
            text = await connection.fetchval("SELECT value FROM facts WHERE name = $1 FOR UPDATE", FACT)
            if text is not None:
                await connection.execute("UPDATE facts SET value = $2 WHERE name = $1", FACT, closed(text))

        await self.ask(close)

    async def marks(self, keys: Sequence[str], run: int) -> Mapping[str, Mark]:
        """
        Return the stored entries of *keys*, and note that the input of *run* contains them.

        The note is local: other machines read their own inputs at the same time, and a statement may be
        repeated.
        """
        text = "SELECT key, seq, content, state FROM entries WHERE key = ANY ($1)"
        rows = await self.fetch(text, list(keys))
        met = self._met_by(run).note(keys)
        return {row["key"]: Mark(row["seq"], row["content"], row["state"], row["key"] in met) for row in rows}

    def _met_by(self, run: int) -> Met:
        if self._met is None or self._met.run != run:
            self._forget()
            self._met = Met(run)
        return self._met

    def _forget(self) -> None:
        if self._met is not None:
            self._met.close()
            self._met = None

    async def done(self, verdict: Verdict | None, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that are done."""
        wanted = None if verdict is None else str(verdict)
        where = "state = 2 AND ($1::text IS NULL OR verdict = $1) AND seq > $2 ORDER BY seq LIMIT $3"
        return await self._entries(where, wanted, after, limit)

    async def not_done(self, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that are not done, in input order."""
        return await self._entries("done_at IS NULL AND seq > $1 ORDER BY seq LIMIT $2", after, limit)

    async def summary(self) -> Summary:
        """Return the counts of entries."""
        text = """
            SELECT state, verdict, sum(many)::bigint AS many,
                coalesce(sum(many) FILTER (WHERE lost), 0)::bigint AS lost,
                coalesce(sum(many) FILTER (WHERE overtaken), 0)::bigint AS overtaken
            FROM counts GROUP BY state, verdict HAVING sum(many) <> 0
        """
        rows = await self.fetch(text)
        return Summary(
            to_do=sum(row["many"] for row in rows if row["state"] == State.TO_DO),
            sending=sum(row["many"] for row in rows if row["state"] == State.SENDING),
            verdicts={Verdict(row["verdict"]): row["many"] for row in rows if row["state"] == State.DONE},
            secrets_lost=sum(row["lost"] for row in rows),
            overtaken=sum(row["overtaken"] for row in rows),
            open_inputs=await self.open_inputs(),
        )

    async def fold_counts(self) -> None:
        """Fold the counts that were appended, if they are many."""
        if len(await self.fetch("SELECT 1 FROM counts LIMIT $1", _FEW)) == _FEW:
            await self.fetch(_FOLD)

    async def reopen(self, verdict: Verdict, *, keep_sends: bool, keys: Sequence[str] | None = None) -> int:
        """
        Reopen the entries with *verdict*, all or those of *keys*; return how many.

        Without *keep_sends*, they are reopened as if they had never been sent. It takes many short
        transactions. If it is stopped, what they did stays, and another call does the rest.
        """
        return await self._reopen({verdict: keep_sends}, keys, newest=False)

    async def reopen_as_newest(
        self, keep_sends: Mapping[Verdict, bool], keys: Sequence[str] | None = None
    ) -> int:
        """
        Reopen entries at the end of the order, so that they overtake what came after them; return how many.

        They keep their order among themselves. *keep_sends* has each verdict that is meant.
        """
        return await self._reopen(keep_sends, keys, newest=True)

    async def _reopen(
        self, keep_sends: Mapping[Verdict, bool], keys: Sequence[str] | None, *, newest: bool
    ) -> int:
        # Up to the last entry of today: those moved behind it may be finished again meanwhile.
        last: int = (await self.fetch("SELECT coalesce(max(seq), 0) FROM entries"))[0][0]
        verdicts = [*map(str, keep_sends)]
        count = 0
        if keys is None:
            after = 0
            while again := await self._reopen_some(
                keep_sends, _TO_REOPEN, [verdicts, after, last, _AT_ONCE], newest=newest
            ):
                count, after = count + len(again), max(again)
                await self.fold_counts()
            return count
        for some in slices(await self._in_order(keys), _AT_ONCE):
            args = [verdicts, some]
            count += len(await self._reopen_some(keep_sends, _THESE_TO_REOPEN, args, newest=newest))
        return count

    async def _in_order(self, keys: Sequence[str]) -> list[str]:
        """Return those of *keys* that are in the journal, in the order of their entries."""
        found: list[tuple[int, str]] = []
        for some in slices([*dict.fromkeys(keys)], _AT_ONCE):
            text = "SELECT seq, key FROM entries WHERE key = ANY ($1)"
            found += [(row["seq"], row["key"]) for row in await self.fetch(text, some)]
        return [key for _, key in sorted(found)]

    async def _reopen_some(
        self, keep_sends: Mapping[Verdict, bool], text: str, args: Sequence[object], *, newest: bool
    ) -> set[int]:
        """Reopen the entries that the query *text* finds, as one chunk; return their earlier numbers."""
        again: set[int] = set()  # from all tries: a later one no longer finds what an earlier one reopened

        async def reopen(connection: Any) -> None:
            await connection.execute(IN_TURN)
            rows = await connection.fetch(text, *args)
            if not rows:
                return
            chunk = await connection.fetchval("INSERT INTO chunks DEFAULT VALUES RETURNING id")
            chosen = await self._chosen(connection, [row["thing"] for row in rows])
            through = last_of(await connection.fetchval(_RESTORED)) if newest else 0
            if rows[0]["seq"] <= through:
                self._load_commons(await connection.fetch(_COMMONS))
            intents = [
                self._reopened(row, through, keep_sends=keep_sends[Verdict(row["verdict"])], newest=newest)
                for row in rows
            ]
            seqs = [row["seq"] for row in rows]
            await connection.execute(_REOPEN, seqs, chosen, intents, newest, chunk)
            await self.chunks.give(connection, chunk)
            await connection.execute(SIGNAL.format(QUEUED))
            again.update(row["seq"] for row in rows)

        await self.ask(reopen)
        return again

    def _reopened(self, row: Any, through: int, *, keep_sends: bool, newest: bool) -> str:  # Any: asyncpg's
        """Return the packed intent of an entry that is done again; those up to *through* are of a copy."""
        if newest and row["seq"] <= through:
            packed = Packed(common=row["common"], text=row["intent"])
            return kept_in_doubt(row["key"], packed, self.commons, keep_sends=keep_sends)
        intent = not_overtaken(row["intent"]) if newest else row["intent"]
        return intent if keep_sends else without_sends(intent)

    async def prune(self, before: int) -> int:
        """
        Reduce entries done before *before* (epoch ms) to key, digest and verdict; return how many.

        It takes many short transactions; what a stopped call did stays, and another call does the rest.
        """
        count, after = 0, 0
        while (last := (await self.fetch(_LAST_ENTRY, after, _LOOKED_AT))[0][0]) is not None:
            count, after = count + await self._prune_entries(before, after, last), last
            await self.fold_counts()
        thing = ""
        while (to := (await self.fetch(_LAST_STATE, thing, _LOOKED_AT))[0][0]) is not None:
            await self.fetch(_PRUNE_STATES, before, thing, to)
            thing = to
        while await self.tidy():
            pass
        return count

    async def _prune_entries(self, before: int, after: int, last: int) -> int:
        """Prune the entries after *after* up to *last*; return how many."""
        pruned: set[int] = set()  # from all tries: a later one no longer finds what an earlier one pruned

        async def prune(connection: Any) -> None:
            await connection.execute(IN_TURN)  # it locks rows as a retry does, but in another order
            pruned.update(row["seq"] for row in await connection.fetch(_PRUNE, before, after, last))

        await self.ask(prune)
        return len(pruned)

    # --- earlier writes to the same things

    async def last_writes(self, things: Sequence[str]) -> list[LastWrite]:
        """Return the last finished write to each of *things*, and the state it left."""
        text = "SELECT thing, seq, team, state, stamp FROM states WHERE thing = ANY ($1)"
        return [LastWrite(**row) for row in await self.fetch(text, things)]

    async def unknown_of(self, things: Sequence[str]) -> list[Entry]:
        """Return the entries of *things* with the verdict UNKNOWN."""
        where = f"verdict = '{Verdict.UNKNOWN}' AND thing IS NOT NULL AND thing = ANY ($1)"
        return await self._entries(where, things)

    async def claims_of(self, things: Sequence[str]) -> list[tuple[str, str]]:
        """Return (webhook id, key) of the untagged creates of *things*, which are URLs."""
        text = "SELECT claim, key FROM entries WHERE claim IS NOT NULL AND thing = ANY ($1) ORDER BY seq"
        return [(row["claim"], row["key"]) for row in await self.fetch(text, things)]

    async def claims(self, limit: int) -> Iterable[tuple[str, str]]:
        """Return (webhook id, key) of the latest untagged creates."""
        text = "SELECT claim, key FROM entries WHERE claim IS NOT NULL ORDER BY seq DESC LIMIT $1"
        return [(row["claim"], row["key"]) for row in await self.fetch(text, limit)]

    async def _entries(self, where: str, *values: object) -> list[Entry]:
        text = f"SELECT *, tableoid::text AS place FROM entries WHERE {where}"  # noqa: S608 - our own text
        rows = await self.fetch(text, *values)
        if rows and self._is_elsewhere(rows[0]["place"]):  # new connections check what that means
            await self.reconnect()
            rows = await self.fetch(text, *values)
        if any(row["common"] not in self.commons.texts for row in rows if row["common"] is not None):
            self._load_commons(await self.fetch(_COMMONS))
        return [entry_of(row) for row in rows]

    def _is_elsewhere(self, _entries: str) -> bool:
        """Return whether the table, of which this is the OID, is another one than before."""
        return False

    def _load_commons(self, rows: list[Any]) -> None:
        for row in rows:
            self.commons.load(row["number"], row["text"])
            self._stored_commons.add(row["number"])


def _refuse(keys: Sequence[str]) -> NoReturn:
    problem = "another machine has stored a different write under this key"
    raise InvalidRequestError([f"key {key!r}: {problem}" for key in keys])
