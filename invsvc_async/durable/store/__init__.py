"""
The store of writes under client journals, batches and outboxes, in SQLite and PostgreSQL.

What is outside asks for *operations*: functions of a store, which return named types.  Some are *scripts*,
which ``store.run`` runs in one transaction, and again if the reply about that was lost.  Others run one
statement by ``store.rows``, which may run again as well, or select by ``store.entries``.  ``storage/dialect``
explains scripts.

All SQL of the tables is in ``statements``: a named text for each statement, beside a sentence of what it
guards.  The top of ``statements`` tells how to read one.  Fragments are in ``conditions`` and
``durable/entry.py``, which has the columns of an entry; and in ``noted`` those on what users note: how it is
chosen, and shown.  A new column of it needs a field in ``writes/noted``, a row of ``NOTED`` in ``noted``, and
a version, in ``schema_sql`` and ``migrations``.

=====================  ================================================================================
what is asked for      file: operations
=====================  ================================================================================
a store                ``opening``: where it is; ``store_at``.  ``tables``: making them, and bringing them
                       up to date.  ``facts``: what holds for all of it.  ``earlier_names``: the
                       things in one of 0.1.0 get their names of today
who lives              ``members``: signs of life.  ``lanes``: who has which entries; take-over
a write under a key    ``claims``: ``claim`` (Claimed, Finished, Held, Abandoned), ``look``, ``take``,
                       ``reopen_seen``, ``note_anew``, ``release``; ``released_in_doubt``, for those
                       that settle what processes have left.  Whether a known key has another
                       write is decided outside, by its digest: ``check_same`` in
                       ``durable/key_names``; for outboxes, ``compared_in`` of ``enqueued``, or
                       ``compared`` of ``application_table``
order                  ``order``: what comes before a write, ``begin``, who is overtaken, which untagged
                       create is held (``check_alone``), what a write without a key waits for
                       (``things_in_doubt``).  In batches and outboxes, a dispatcher decides
                       who is overtaken (``batch/late_places``)
a send, an end         ``put`` of the store, which stores them in groups (``puts``), of writes with and
                       without a key
what was left          ``states``: what the last write to each thing left of it
verdicts               ``unheard``: who gives each, until it is acknowledged.  ``findings``: those of people
entries                ``adding``; ``reopening``; ``deleting``: dropping and pruning.  ``unkeyed_removal``:
                       of a client's, without keys.  ``lists``: what people see
what is not due        ``due``: writes that wait for their time, and those behind them
whose turn it is       ``open_in`` of the store: the next entries of lanes.  ``team_turns``: of each team
a batch                ``inputs``: who reads one, and what is added.  ``adding``: which of it the store
                       has already (``known_of``)
an outbox              ``enqueued``: by transactions of the application.  ``application_table``: in the
                       application's own SQLite file; then ``deleted_rows``: deleting an entry in the
                       store, and its row in that file
an older copy          ``restored``: recognising it, and the notes about it; a file by ``Epoch``.
                       ``check_place`` of a store in PostgreSQL decides with these
=====================  ================================================================================

Beneath are ``tables`` (what the tables are for; ``Opening``: how a store is to be opened), ``migrations``
(what each version of the tables has changed), ``conditions`` (what columns of an entry say), ``fact_names``,
``noted`` (what users note, such as labels, and choosing by it), ``schemas`` (where a store is in PostgreSQL),
and ``sqlite`` and ``postgres`` (connections, transactions, group commit, notifications).  The thread of a
file, which makes the groups, is ``storage/sqlite_writer``; the pool of connections, of which a store in
PostgreSQL is one, ``storage/postgres_pool``.

In a file, a list in a statement has at most ``MOST`` items (``storage/dialect``).  Some operations slice what
they are given, by ``in_parts`` or ``slices``; for the others, their callers do.

In texts for people, each store in a file is called a journal.  Else, a journal is that of a client; the other
stores are of batches and outboxes.

The states of an entry
======================

An entry is in a *lane*, a number, whose row in ``lanes`` may have the token of a process, the *owner* of the
lane.  An owner may live, be *silent*, so that it counts as dead (``members``), or have ended; in a file, the
one that has the lock of the file lives.  Only a living owner of its lane sends an entry.  The lanes ``FREED``
and ``ENDED`` have no row (``conditions``).  An owner is *provably done* with an entry once it has released
the lane, or the entry is in ``ENDED``; and if within the last hour, nothing was taken over from a process
that may only have been silent.  Then whoever takes the entry does not wait for requests that the owner may
still have under way (``has_ended`` of ``TakenLane``, ``is_gone`` of ``claims``).

================  ================  ================================================  ==================
state             ``state``         other columns                                     left by
================  ================  ================================================  ==================
waiting           TO DO             ``done_at`` NULL; a lane without a living         own, finish,
                                    owner, or, for a key, ``FREED`` or ``ENDED``      forget
waiting, aside    TO DO             ``done_at`` NULL; the lane -1 - n; ``due_at``     come back, finish,
                                                                                      forget
owned             TO DO             ``done_at`` NULL; a lane with a living owner      send, finish,
                                                                                      release, set aside,
                                                                                      forget
sending           SENDING           ``done_at`` NULL.  Its living owner sends or      finish, take back,
                                    settles it; without one, the next settles it      own, release;
                                    first                                             without a key of
                                                                                      the user's, forget
finished          DONE              ``verdict``, which may be UNKNOWN, ``outcome``,   reopen, forget, empty
                                    ``done_at``.  In a batch or an outbox, in
                                    ``unheard`` until the application has
                                    acknowledged it
finished, open    DONE              ``verdict``, ``outcome``; ``done_at`` NULL and    forget; reopen; send,
                                    ``digest`` empty: a client has made up the key.   if it is resumed
                                    It stays *open* until the application has it
emptied           DONE              of a batch: finished, without ``intent`` and      nothing
                                    ``outcome``; key, digest and verdict are kept
forgotten                           no row, and its ``seq`` is not given to another   put back
================  ================  ================================================  ==================

What changes them
=================

The names are those of statements (``statements``), each after the file and the function that yields or makes
it, perhaps by another one that it calls.  What ``puts`` makes is run by ``_store_group`` of ``sqlite``, and
``_store`` of ``postgres``.  What ``enqueued`` and ``application_table`` make for transactions of the
application is run in ``outbox``.  A store in a file has the same statements as PostgreSQL, unless others are
named.

==========  ====================================  =====================================================
change      which entries                         by
==========  ====================================  =====================================================
enter       of the input of a batch               adding: ``add``, with ``entry_sql.ADD``
            of a key; perhaps as being sent       claims: ``claim``, with ``key_sql.CLAIM``; in a file,
                                                  ``_insert``, with ``entry_sql.ADD``
            of an outbox                          enqueued: ``insert_into``, with
                                                  ``entry_sql.enqueue``; in a file,
                                                  application_table: ``insert``, with
                                                  ``entry_sql.INSERT_ROW``, then enqueued:
                                                  ``_take_in``, with ``entry_sql.ADD``
            of an outbox, aside until its time    as above; in a file, then due: ``note_times``, with
                                                  ``entry_sql.NOTE_TIMES``
            of a row marked as moved, of which    enqueued: ``_end_lost``, with ``entry_sql.ADD``
            an older copy of the store has none
            of a write without a key, being sent  puts: ``put_unkeyed``, with ``entry_sql.PUT_UNKEYED``
own         all of a lane                         lanes: ``take_lanes``, with ``store_sql.TAKE_LANES``
            of one key                            claims: ``take``, with ``key_sql.MOVE_ENTRY``
            without keys, of lanes taken over     lanes: ``move_entries``, with ``store_sql.MOVE_REST``
send        of a batch or an outbox               puts: ``put_in_database``, with
                                                  ``entry_sql.PUT_IN_DATABASE``; in a file,
                                                  ``put_in_file``, with ``entry_sql.PUT_IN_FILE``
            of a key that enters, and is next     by its claim, as it enters
            of a key whose run is not next yet    order: ``begin``, with ``key_sql.BEGIN``
            of a key, once more, after one of     as of a batch
            these, or if it creates; or that has
            no thing
            of a write without a key              puts: ``put_unkeyed``, with ``entry_sql.PUT_UNKEYED``
take back   provably not sent; becomes TO DO      as send, with that state.  When it is released, too:
                                                  claims: ``release``, with ``key_sql.RELEASE``
            of a key that is not next, in a file  claims: ``_insert``, with ``key_sql.NOT_NEXT``
finish      of a batch, an outbox or a key        as send, with a verdict
            by a person                           findings: ``store_finding``, with
                                                  ``key_sql.STORE_FINDING``
            without a key of the user's own       as send; in PostgreSQL, if it has changed its thing,
                                                  puts: ``put_unkeyed``, with
                                                  ``entry_sql.PUT_UNKEYED_AND_NOTE``
            of a row marked as moved, of which    enqueued: ``_end_lost``, with ``entry_sql.END_LOST``,
            an older copy of the store has none   as it has entered
release     of one key                            claims: ``release``, with ``key_sql.RELEASE``; of a
                                                  process that is gone, ``take``, with
                                                  ``key_sql.MOVE_ENTRY``
            all of a lane                         lanes: ``release_lanes``, with
                                                  ``store_sql.RELEASE_LANES``; ``end_lane``, with
                                                  ``store_sql.FREE_LANE``; at the opening of a file,
                                                  sqlite: ``_prepare``, with
                                                  ``store_sql.FREE_ALL_LANES_OF_FILE``
            all, without a release, because the   tables: ``upgrade``, with ``store_sql.DISOWN_LANES``
            tables are brought up to date
            of keys, of lanes taken over          lanes: ``move_entries``, with ``store_sql.MOVE_KEYED``
set aside   behind others that are aside          due: ``move_aside``, with ``entry_sql.MOVE_ASIDE``
come back   due                                   due: ``bring_back``, with ``entry_sql.COME_BACK``
            before ``due_at``, though not before  due: ``make_due_again``, with ``entry_sql.MAKE_DUE``,
            ``not_before``: what it was behind    then as above
            is gone
            the same: reopened, after a person    reopening: ``reopen``, with ``entry_sql.REOPEN_CHOSEN``,
            has finished it aside                 then as above
reopen      of one key, by its next run           claims: ``reopen_seen``, with ``key_sql.REOPEN_SEEN``
            by ``retry``                          reopening: ``reopen``, with ``entry_sql.REOPEN_CHOSEN``;
                                                  of keys, ``reopen_keyed``, then with
                                                  ``entry_sql.FREE_REOPENED``
            for the finding of a person           findings: ``store_finding``, with
                                                  ``key_sql.OPEN_AGAIN``
rename      to a thing that 0.1.0 called          earlier_names: ``use_names_of_today``, with
            otherwise; perhaps to another lane    ``key_sql.RENAME_OPEN`` and ``RENAME_NOT_APPLIED``
empty       pruned, in a batch                    deleting: ``prune(empties=True)``, with
                                                  ``entry_sql.EMPTY``
forget      dropped: nothing was sent; or done,   deleting: ``drop``, with ``entry_sql.DROP``
            but not in a batch
            pruned                                deleting: ``prune``, with ``entry_sql.PRUNE``
            without a key: told; or cancelled,    unkeyed_removal: ``remove``, with ``entry_sql.REMOVE``;
            and provably not sent                 in a file whose event loop is closed, sqlite:
                                                  ``forget``, with ``entry_sql.REMOVE_KEY_IN_FILE``
            of a key that has another write in    enqueued: ``_take_in``, with
            the application's file; acknowledged  ``entry_sql.DELETE_REPLACED``
put back    dropped from an outbox in a file,     deleted_rows: ``settle``, with ``entry_sql.PUT_BACK``
            whose row could not be deleted
==========  ====================================  =====================================================

Reopening keeps what ``intent`` knows of earlier sends.  After UNKNOWN, that is each send, and the next owner
settles them first: the entry is SENDING if it is of a key; in a batch or an outbox it is TO DO, although it
may have been sent.  After another verdict, ``retry`` keeps only that something was sent, without an effect.
A write of a key that is done anew with another body, or to another thing, stays TO DO; claims:
``key_sql.NOTE_ANEW`` stores its new digest, intent, thing and place together.

A person may finish an entry that is TO DO, if its intent has a send that may have had an effect, as after
UNKNOWN, or if it is of an older copy of the store, which does not know what was sent since.

Which guards they have
======================

- What only the owner of a lane may do is refused to a process that has lost the lane.  In PostgreSQL, another
  process may take it over at any time.  So the token on the row of the lane is checked, and the row locked
  until the commit, in ``PUT_IN_DATABASE``, ``PUT_UNKEYED`` and ``CLAIM``, and in the scripts that run
  ``BEGIN``, ``NOTE_ANEW``, ``MOVE_ENTRY``, ``REOPEN_SEEN``, ``MOVE_REST``, ``MOVE_ASIDE`` and
  ``COME_BACK``.
- In a file, the process that has the lock of the file has all lanes for as long as the file is open.  So
  ``PUT_IN_FILE`` only checks that the entry is open.
- A release of one key checks the token without a lock.  A process that takes over the lane at that moment
  sends nothing from it, but first moves its entries, those of keys to where any run may take them.  So the
  release does no more than that.
- ``MOVE_ENTRY``, ``REOPEN_SEEN`` and ``STORE_FINDING`` are for an entry that was seen before: ``LOCK_ENTRY``
  locks it, and the operation compares all of it.  ``LOCK_REOPENABLE`` and ``LOCK_OF_KEY`` lock what
  ``REOPEN_CHOSEN`` and ``DROP`` change, and tell its state.  ``PRUNE`` and ``EMPTY`` ask again what
  ``FIND_OLD`` asked.
- ``REMOVE`` compares only the lane, not the token: the application has the verdict already, or knows that
  nothing was sent.
- ``PUT_IN_DATABASE`` compares the key, too, because a connection may find an older copy of the database, in
  which a number is another entry's.  A file is compared with the one that was opened (``SameFile``).
- ``PUT_IN_DATABASE`` accepts an end that is stored already, because a reply may be lost.  A file answers
  always.
- What follows from an end, in ``unheard``, ``states`` and ``counts``, is done by the same statement.  In a
  file, by triggers (``schema_sql``) and ``NOTE_LEFT_IN_FILE``, because each statement of Python costs the
  GIL.  For a person's finding, what is in ``states`` is done by further statements of its transaction
  (``findings``); in PostgreSQL, all.
- Whether a claimed write may enter as being sent is decided before the insertion; in a file, after it, in the
  same transaction (``order``).
"""
