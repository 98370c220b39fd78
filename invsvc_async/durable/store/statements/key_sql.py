"""
Statements about the keys of users, the order of the writes to one thing, and the findings of people.

In the order of a key's life: its claim, or its take-over; what its write waits for; being sent; what writes
have left of a thing; the release; the finding of a person.  How to read them is told at the top of
``statements``.  What is stored of a send and of its end is in ``entry_sql``.
"""

from __future__ import annotations

from typing import Final

from invsvc_async.durable.entry import (
    CHANGING,
    ENTRY,
    SET_CHANGING,
    WRITTEN,
    WRITTEN_NAMES,
    State,
)
from invsvc_async.durable.store.conditions import (
    FREED,
    IN_LANE,
    KEYED,
    NOT_APPLIED,
    OPEN,
    Teller,
    WaitsFor,
)
from invsvc_async.durable.store.statements.entry_sql import STATE_NOT_KNOWN
from invsvc_async.durable.store.statements.store_sql import (
    MARK_IS_OPEN,
    dead,
    has_living_owner,
    has_no_living_owner,
)
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.kinds import PREFIXES_OF_ALIKE

# --- claiming a key, and looking at it: ``claims``

_TELLER: Final = (
    f"CASE WHEN u.seq IS NULL THEN {Teller.NOBODY:d}"
    f" WHEN {dead('u.taker')} THEN {Teller.GONE:d} ELSE {Teller.LIVING:d} END"
)
# An entry, the token of its lane, whether a living process has it (1 or 0), and a ``Teller``.
_FOUND: Final = f"""
SELECT {ENTRY}, l.owner, CASE WHEN {has_no_living_owner("l.owner")} THEN 0 ELSE 1 END AS lives,
    {_TELLER} AS teller
FROM {{s}}entries AS e LEFT JOIN {{s}}lanes AS l ON l.id = e.lane LEFT JOIN {{s}}unheard AS u ON u.seq = e.seq
"""
# The entries of keys as they are now, without a lock.
LOOK: Final = f"{_FOUND} WHERE e.key {{any 2 text}}"
# The same question, when only yes or no matters.
HAS_KEY: Final = "SELECT 1 FROM {s}entries WHERE key = $1"
# The columns of the values $2; the number of a new entry; its columns.
_GIVEN: Final = f"{WRITTEN} taker:text"
_NUMBER: Final = "nextval('{s}entries_seq_seq')"
_WRITTEN_COLUMNS: Final = ", ".join(WRITTEN_NAMES)
# The values of a new entry, of a row that has ``is_whole`` and ``is_next`` (below).  An entry of a thing that
# is not next, or of which that is not known (NULL), enters as TO DO, whatever state it was given.
_VALUES_IF_NEXT: Final = ", ".join(
    f"CASE WHEN is_whole AND (thing IS NULL OR is_next) THEN state ELSE {State.TO_DO:d} END"
    if name == "state"
    else name
    for name in WRITTEN_NAMES
)
# PostgreSQL claims keys in one statement, which also returns the entries that were there:
#
#     durable makes the commit wait for the disk
#     whole   is_whole: the database has all keys, since it was not restored from a copy.  Otherwise no write
#             is next.  A run looks for the mark of a copy before it claims.  But this connection may be the
#             first one to the copy: then ``connected`` of the store has set the mark since.  A run whose
#             write is not next looks for the mark once more before it sends
#     mine    the lane, if it is still this process's; it stays so until the commit
#     new     what is given under keys that have no entry, if the lane is still this process's
#     line    for each thing in new, its row of states, locked until the commit, so the numbers of the entries
#             of a thing are in the order of their commits.  ``newest`` becomes the number of the new entry,
#             and ``before`` the number that ``newest`` was, since RETURNING shows new values only;
#             ``is_next``: see below
#     made    the inserted entries; none under a key for which another process was faster: then ``newest``
#             names no entry, and the next claim is not next
#     tellers who has to return the secrets of webhooks that they create
#
# A write is next (``order``) if ``before`` is 0: its row of states is new, so no write to the thing is known.
# Or if ``before`` is an entry of this lane that was applied to this thing, not anew to another one; that may
# be read as of the statement's start, because it stays so.  ``before`` is NULL if the row was there but named
# no claim: something else has made it, or a retry, or a write that is done anew to the thing, has removed the
# name.  Then ``is_next`` is NULL, too, and counts as no.
CLAIM: Final = f"""
WITH durable AS MATERIALIZED (SELECT {{durably}} AS done),
whole AS (SELECT NOT EXISTS ({MARK_IS_OPEN}) AS is_whole),
mine AS MATERIALIZED (SELECT id FROM {{s}}lanes WHERE id = $3 AND owner = $4 {{share}}),
new AS MATERIALIZED (
    SELECT mine.id, given.* FROM durable CROSS JOIN mine CROSS JOIN {{rows 2 {_GIVEN}}}
    WHERE NOT EXISTS (SELECT 1 FROM {{s}}entries AS e WHERE e.key = given.key)
), line AS (
    INSERT INTO {{s}}states AS s (thing, place, newest, before)
    SELECT thing, 0, {_NUMBER}, 0 FROM new WHERE thing IS NOT NULL ORDER BY thing
    ON CONFLICT (thing) DO UPDATE SET before = s.newest, newest = {_NUMBER}
    RETURNING thing, newest, before = 0 OR EXISTS (
        SELECT 1 FROM {{s}}entries
        WHERE seq = before AND lane = $3 AND verdict = '{Verdict.APPLIED}' AND thing = s.thing
    ) AS is_next
), made AS (
    INSERT INTO {{s}}entries (seq, place, lane, {_WRITTEN_COLUMNS})
    SELECT number, number, id, {_VALUES_IF_NEXT}
    FROM (SELECT coalesce(newest, {_NUMBER}) AS number, * FROM new LEFT JOIN line USING (thing)) AS numbered
        CROSS JOIN whole
    ON CONFLICT (key) DO NOTHING RETURNING seq, key
), tellers AS (
    INSERT INTO {{s}}unheard (seq, taker)
    SELECT made.seq, given.taker FROM made JOIN {{rows 2 {_GIVEN}}} USING (key) WHERE given.taker IS NOT NULL
)
SELECT given.key, made.seq, is_whole AND (given.thing IS NULL OR is_next), found
FROM whole CROSS JOIN {{rows 2 {_GIVEN}}} LEFT JOIN made USING (key) LEFT JOIN line USING (thing)
    LEFT JOIN LATERAL ({_FOUND} WHERE e.key = given.key) AS found ON true
"""
# In a file, entries that were inserted as being sent, but are not next (``order``), become TO DO in the same
# transaction.  A place in ``states`` is the number of an entry, unless it was given later (``order``): then
# no entry is found, and the new one is not next.  Nor is it if that entry was done anew to another thing.
NOT_NEXT: Final = f"""
UPDATE {{s}}entries AS e SET state = {State.TO_DO:d} WHERE seq {{any 1 bigint}} AND thing IS NOT NULL AND (
    EXISTS (SELECT 1 FROM {{s}}entries AS o WHERE o.thing = e.thing AND o.{OPEN} AND o.seq <> e.seq)
    OR EXISTS (SELECT 1 FROM {{s}}entries AS u WHERE u.thing = e.thing AND u.verdict = '{Verdict.UNKNOWN}')
    OR EXISTS (SELECT 1 FROM {{s}}states AS s WHERE s.thing = e.thing AND NOT EXISTS (
        SELECT 1 FROM {{s}}entries
        WHERE seq = s.place AND lane = $2 AND verdict = '{Verdict.APPLIED}' AND thing = s.thing
    ))
) RETURNING seq
"""
# Who returns the secret of a new webhook; the last that was noted counts.
SET_TELLER: Final = """
INSERT INTO {s}unheard (seq, taker) SELECT seq, taker FROM {rows 1 seq:bigint taker:text} WHERE true
    ON CONFLICT (seq) DO UPDATE SET taker = excluded.taker
"""

# --- taking over a key, and reopening it: ``claims``

# A condition: entries that may have been sent, in the lanes $1.
RELEASED_IN_DOUBT: Final = (
    f"e.lane {{any 1 bigint}} AND e.{OPEN} AND e.state = {State.SENDING:d}"
    " ORDER BY e.seq"
)
# The entry stays as it is until the commit.  The flags are for the counts (``findings``).
LOCK_ENTRY: Final = (
    f"SELECT {ENTRY}, e.flags FROM {{s}}entries AS e WHERE e.seq = $1 {{update}}"
)
# Only if the entry is as it was seen; the script has locked it, and both lanes.
MOVE_ENTRY: Final = "UPDATE {s}entries SET lane = $2 WHERE seq = $1"
# Also only if it is as it was seen, under its lock, and that of the lane of the run: of two runs, one reopens
# the entry.
REOPEN_SEEN: Final = """
UPDATE {s}entries SET lane = $2, state = $3, verdict = NULL, outcome = NULL, done_at = NULL, flags = 0
    WHERE seq = $1
"""
# What an entry is done anew with.  Only of an open one in the lane, which the script has locked, and only if
# nothing of it may have been sent.
NOTE_ANEW: Final = f"""
UPDATE {{s}}entries SET thing = $3, place = $4, digest = $5, common = $6, intent = $7
    WHERE seq = $1 AND lane = $2 AND {OPEN} AND state = {State.TO_DO:d} RETURNING seq
"""
# The row of a thing to which a write is done anew: ``begin`` locks it, so it has to be there.  The next claim
# of a key of the thing must not count as next (``CLAIM``).
ENTER_ORDER: Final = """
{postgres}INSERT INTO {s}states AS s (thing, place) VALUES ($1, 0)
    ON CONFLICT (thing) DO UPDATE SET newest = NULL
"""

# --- things that have another name now: ``earlier_names``

# The writes to the thing $1 get its name of today, $2; those in the lanes of a batch or an outbox get the
# lane of that name, $3.  First those that are open, then those that may be retried.  Of others, nobody asks
# the thing.
_RENAME: Final = f"""
UPDATE {{s}}entries SET thing = $2, lane = CASE WHEN $3 > 0 AND {IN_LANE} THEN $3 ELSE lane END
    WHERE thing = $1
"""
RENAME_OPEN: Final = f"{_RENAME} AND {OPEN}"
RENAME_NOT_APPLIED: Final = f"{_RENAME} AND {NOT_APPLIED}"
# The place is the later one of those under both names, and what the last write left counts as not known.  The
# next claim of a key of the thing must not count as next (``CLAIM``).
MERGE_STATES: Final = f"""
INSERT INTO {{s}}states AS s (thing, place) SELECT $2, place FROM {{s}}states WHERE thing = $1
{STATE_NOT_KNOWN}
"""
DELETE_STATE: Final = "DELETE FROM {s}states WHERE thing = $1"

# --- the order of the writes to one thing: ``order``

# Whether a write to the thing $1 after the place $2 is being sent.  One without a key of a user has no place;
# its number says what it came after.
_ONE_IS_BEING_SENT: Final = f"""
EXISTS (
    SELECT 1 FROM {{s}}entries WHERE thing = $1 AND {OPEN} AND state = {State.SENDING:d}
        AND (place > $2 OR place = 0 AND seq > $2)
)
"""
# Whether one may have had an effect.  Of those that are done, ``states`` has the place of the last one.
_IS_OVERTAKEN: Final = f"""
EXISTS (SELECT 1 FROM {{s}}states WHERE thing = $1 AND place > $2) OR {_ONE_IS_BEING_SENT}
"""
# Asked before a write is sent, and once more in the transaction that notes that it is.
OVERTAKEN: Final = f"SELECT {_IS_OVERTAKEN}"


def _comes_before(
    row: str,
    *,
    place: str,
    own: str,
    waits_for: str,
) -> str:
    """
    Return the condition that the open entry *row* comes before the entry *own* at *place*, to the same thing.

    *waits_for* is ``WaitsFor`` as a number.
    """
    is_earlier = f"{row}place BETWEEN 1 AND {place} - 1"  # 0: not among those of keys
    is_other_sent = f"{row}state = {State.SENDING:d} AND {row}seq <> {own}"
    return (
        f"({waits_for} < {WaitsFor.SENT:d} AND {is_earlier})"
        f" OR ({waits_for} > {WaitsFor.EARLIER:d} AND {is_other_sent})"
    )


# Of the writes that the entry $4, of the thing $1 at the place $2, waits for, as $5 says (``WaitsFor``), the
# first above the place $3, up to which others were passed over already; and what is known of the thing.
AHEAD: Final = f"""
SELECT earlier.key, earlier.place, {_IS_OVERTAKEN}, {_ONE_IS_BEING_SENT}, EXISTS (
    SELECT 1 FROM {{s}}entries AS e WHERE e.thing = $1 AND e.verdict = '{Verdict.UNKNOWN}' AND e.seq <> $4
), s.place, s.team, s.state, s.stamp
FROM (SELECT {{arg 1 text}} AS thing) AS given LEFT JOIN {{s}}states AS s USING (thing) LEFT JOIN (
    SELECT key, place FROM {{s}}entries WHERE thing = $1 AND {OPEN} AND place > $3 AND (
        {_comes_before("", place="$2", own="$4", waits_for="{arg 5 smallint}")}
    ) ORDER BY place LIMIT 1
) AS earlier ON true
"""
# The first open writes to the thing $1 before the place $2.
KEYS_BEFORE: Final = f"""
SELECT key FROM {{s}}entries WHERE thing = $1 AND {OPEN} AND place BETWEEN 1 AND $2 - 1
    ORDER BY place LIMIT 100
"""
# The verdicts UNKNOWN of other writes to the thing.
UNKNOWN_BESIDE: Final = f"""
SELECT seq, done_at FROM {{s}}entries WHERE thing = $1 AND verdict = '{Verdict.UNKNOWN}' AND seq <> $2
"""
# The writes whose outcome is not known, unless another process is about to find out: those that are UNKNOWN;
# and those that may have been sent, in lanes without a living owner, or, under keys, in the lane $2 of this
# process.
_IS_OF_LIVING: Final = f"""
EXISTS (SELECT 1 FROM {{s}}lanes AS l WHERE l.id = e.lane AND {has_living_owner("l.owner")})
"""
_ARE_IN_DOUBT: Final = (
    f"e.verdict = '{Verdict.UNKNOWN}'",
    f"""
    e.{OPEN} AND e.state = {State.SENDING:d}
        AND CASE WHEN e.lane = $2 THEN e.{KEYED} ELSE NOT {_IS_OF_LIVING} END
    """,
)
# The things of such writes that come after the thing $3, the first $4 of them.
THINGS_IN_DOUBT: Final = f"""
{" UNION ".join(f"SELECT thing FROM {{s}}entries AS e WHERE thing > $3 AND {each}" for each in _ARE_IN_DOUBT)}
ORDER BY thing LIMIT $4
"""
# Such writes to the thing $3.
IN_DOUBT_OF_THING: Final = " UNION ".join(
    f"SELECT seq, done_at FROM {{s}}entries AS e WHERE thing = $3 AND {each}"
    for each in _ARE_IN_DOUBT
)

# --- what dispatchers ask before their writes (``batch/earlier_writes``): ``order``

# A condition: the entries of things with the verdict UNKNOWN.
UNKNOWN_OF_THINGS: Final = f"e.verdict = '{Verdict.UNKNOWN}' AND e.thing {{any 1 text}}"
# A thing that is named with such a prefix is only that of untagged creates (``kind.alike`` in
# ``reconcile/kinds``).
_NO_CREATE: Final = " AND ".join(
    f"thing NOT LIKE '{each}%'" for each in PREFIXES_OF_ALIKE
)
# The last place of each thing at which a write is being sent, which is no create: a create overtakes nothing.
IN_FLIGHT: Final = f"""
SELECT thing, max(place) FROM {{s}}entries WHERE thing {{any 1 text}} AND {OPEN}
    AND state = {State.SENDING:d} AND {_NO_CREATE} GROUP BY thing
"""
# A condition: the entries of things that wait in a restored store, and may have been sent since the copy; the
# last ones come first.  Those up to the number $2 are of the copy.  Others have sends in their intents, if
# they are in doubt; "sent" may also be a name in a body, so some are found that have none.  What is aside may
# have been sent if it waits there for nothing but the one before it.
TO_DO_OF_COPY: Final = f"""
e.thing {{any 1 text}} AND e.{OPEN} AND e.state = {State.TO_DO:d}
    AND (e.{IN_LANE} OR coalesce(e.not_before, 0) <= {{ms}})
    AND (e.seq <= $2 OR e.intent LIKE '%"sent":%') ORDER BY e.place DESC
"""

# --- beginning to send: ``begin`` of ``order``

# The row is there: the claim of a key makes it (``line`` in ``CLAIM``), or ``ENTER_ORDER``.  In a file
# nothing has to be locked.
LOCK_THING: Final = "SELECT 1 FROM {s}states WHERE thing = $1 {update}"


def _before(thing: int) -> str:
    """
    Return the rows of the open writes to a thing that an entry waits for.

    The values are, from the number *thing* on: the thing, the place and the number of the entry, and which
    writes it waits for (``WaitsFor``).
    """
    place, own, waits_for = thing + 1, thing + 2, thing + 3
    comes_before = _comes_before(
        "e.",
        place=f"${place}",
        own=f"${own}",
        waits_for=f"{{arg {waits_for} smallint}}",
    )
    return f"""
        FROM {{s}}entries AS e LEFT JOIN {{s}}lanes AS l ON l.id = e.lane
        WHERE e.thing = {{arg {thing} text}} AND e.{OPEN} AND ({comes_before})
    """


# Whether the entry $4 of the thing $2, at the place $3, has to wait in any case: a living process, by the
# silence $1, has one of the writes that come before, as $5 says; or one that comes after the place $6 may
# have had an effect, which its run does not know.  Then, whether one of those before may have been sent; and
# whether another write to the thing is UNKNOWN.  Its run may know these (``WritesBeside``).
HAS_TO_WAIT: Final = f"""
SELECT EXISTS (SELECT 1 {_before(2)} AND {has_living_owner("l.owner")})
    OR EXISTS (SELECT 1 FROM {{s}}states WHERE thing = {{arg 2 text}} AND place > $6),
    EXISTS (SELECT 1 {_before(2)} AND e.state = {State.SENDING:d}),
    EXISTS (
        SELECT 1 FROM {{s}}entries AS e
        WHERE e.thing = {{arg 2 text}} AND e.verdict = '{Verdict.UNKNOWN}' AND e.seq <> $4
    )
"""
# The intents of those before that may have been sent; the values are $1 to $4.  Each send stores another one.
INTENTS_SENT_BEFORE: Final = (
    f"SELECT e.intent {_before(1)} AND e.state = {State.SENDING:d}"
)
# Only an open entry that is still in the lane of the run, which the script has locked.
BEGIN: Final = f"""
UPDATE {{s}}entries AS e SET {SET_CHANGING} FROM {{rows 1 number:bigint at:bigint {CHANGING}}}
    WHERE e.seq = given.number AND e.lane = given.at AND e.{OPEN} RETURNING seq
"""
# Whether ``BEGIN`` has stored this intent as being sent before, by a transaction whose reply was lost.  Each
# send stores another text: the intent has the times of its sends.
HAS_BEGUN: Final = f"""
SELECT EXISTS (SELECT 1 FROM {{s}}entries
    WHERE seq = $1 AND lane = $2 AND {OPEN} AND state = {State.SENDING:d} AND intent = {{arg 3 text}})
"""
# Whether a living process has another write to the thing that may have been sent; or this one, of the token
# $4, which may seem silent just now.
ANOTHER_IS_HELD: Final = f"""
SELECT EXISTS (
    SELECT 1 FROM {{s}}entries AS e JOIN {{s}}lanes AS l ON l.id = e.lane
    WHERE e.thing = {{arg 2 text}} AND e.{OPEN} AND e.state = {State.SENDING:d} AND e.seq <> $3
        AND ({has_living_owner("l.owner")} OR l.owner = {{arg 4 text}})
)
"""

# --- what writes have left: ``states``

# What the last finished write to each thing has left.
LAST_WRITES: Final = (
    "SELECT thing, team, state, stamp, place FROM {s}states WHERE thing {any 1 text}"
)
# ``claim`` is not the claim of a key: it is the id of the webhook that an untagged create has made.
WEBHOOKS_MADE: Final = """
SELECT claim, key FROM {s}entries WHERE claim IS NOT NULL AND thing {any 1 text} ORDER BY seq
"""
# The same of the webhooks whose claims are $1, whatever the URL was with which each was made.  No index is by
# claim: that of ``thing`` is read as a whole, which has a row for each claim.  If the rows were ordered by
# ``seq``, SQLite would read all entries.  PostgreSQL reads all of them anyway, until it has analysed the
# table.
CLAIMS_ON: Final = """
SELECT claim, key FROM {s}entries WHERE claim IS NOT NULL AND claim {any 1 text}
"""

# --- releasing a key: ``claims``

# Only an open entry that is still in the lane $2, if that still has the token $3.
_IF_OWNED: Final = f"""
WHERE key = $1 AND lane = $2 AND {OPEN}
    AND EXISTS (SELECT 1 FROM {{s}}lanes WHERE id = $2 AND owner = $3)
"""
# For any run.  One with the intent $4 was not sent, although it entered as being sent.
RELEASE: Final = f"""
UPDATE {{s}}entries SET lane = {FREED},
    state = CASE WHEN intent = {{arg 4 text}} THEN {State.TO_DO:d} ELSE state END {_IF_OWNED}
"""

# --- what a person has found out: ``findings``

# An entry that is done already may get another end.  It is opened first, so that in a file all that follows
# from an end, by triggers, follows from this one, too.
OPEN_AGAIN: Final = f"""
UPDATE {{s}}entries SET state = {State.TO_DO:d}, verdict = NULL, outcome = NULL, done_at = NULL, flags = 0
    WHERE seq = $1
"""
# For a key in the journal of a client, the given lane is another one.  If the entry stayed in its lane, the
# next claim would take the write for one that the process of the lane has applied (``CLAIM``, ``NOT_NEXT``).
STORE_FINDING: Final = f"""
UPDATE {{s}}entries AS e SET lane = given.lane, {SET_CHANGING}
    FROM {{rows 1 seq:bigint lane:bigint {CHANGING}}}
    WHERE e.seq = given.seq
"""
# The finding is a verdict that nobody has acknowledged yet.  In a file the trigger has noted it, with
# ``TAKER``: that row stays.
NOTE_UNHEARD: Final = (
    "INSERT INTO {s}unheard (seq, taker) VALUES ($1, NULL) ON CONFLICT (seq) DO NOTHING"
)
# The stored state of the thing may be what a later write left, or this one: from now on, it is not known, and
# the next write that is claimed is not next (``CLAIM``).
PERHAPS_CHANGED: Final = (
    f"INSERT INTO {{s}}states AS s (thing, place) VALUES ($1, $2) {STATE_NOT_KNOWN}"
)
