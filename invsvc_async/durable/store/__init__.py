"""
The store of writes under client journals, batches and outboxes, in SQLite and PostgreSQL.

All SQL of its tables is in this folder, and nowhere else.  What is outside asks for operations: functions of
a store, which return named types.  Some are *scripts*, which ``store.run`` runs in one transaction.

=====================  ================================================================================
what is asked for      operations
=====================  ================================================================================
a store                ``opening``: where it is; ``store_at``.  ``facts``: what holds for all of it
who lives              ``members``: signs of life.  ``lanes``: who has which entries; take-over
a write under a key    ``claims``: ``claim`` (Claimed, Finished, Held, Abandoned), ``look``, ``take``,
                       ``reopen``, ``release``
order                  ``order``: what comes before a write, ``begin``, who is overtaken
a send, an end         ``put`` of the store: only if its owner still has the entry
what was left          ``states``: of things, as the next write to one has to know it
verdicts               ``verdicts``: who gives each; acknowledged ones.  ``findings``: those of people
entries                ``adding``; ``reopening``; ``deleting``: dropping and pruning.  ``unkeyed``: those of
                       a client without keys.  ``lists``: what people see
what is not due        ``due``: writes that wait for their time, and those behind them
whose turn it is       ``turns``: the teams that have open writes, and the next ones of each
a batch                ``inputs``: who reads one, and what is added of it
an outbox              ``enqueued``: by transactions of the application.  ``application_table``: in the
                       application's own SQLite file
an older copy          ``restored``: recognising it, and the notes about it
=====================  ================================================================================

Beneath are ``tables`` (the tables, and storing in them), ``conditions`` (what columns of an entry say),
``migrations`` (what each version of the tables has changed), ``schemas`` (where a store is in PostgreSQL),
and ``sqlite`` and ``postgres`` (connections, transactions, group commit, notifications).

The states of an entry
======================

An entry has an *owner* if it is in a lane n whose row in ``lanes`` has the token of a process, and that one
lives: it is not silent (``members``), or, in a file, has the lock of the file.  Only the owner sends.

================  ================  ================================================  ==================
state             ``state``         other columns                                     left by
================  ================  ================================================  ==================
waiting           TO DO             ``done_at`` NULL; a lane without an owner, or     own, forget
                                    for a key ``FREED`` or ``ENDED``
waiting, aside    TO DO             ``done_at`` NULL; the lane -1 - n; ``due_at``     come back, forget
owned             TO DO             ``done_at`` NULL; a lane with an owner            send, release, set
                                                                                      aside, forget
in doubt          SENDING           ``done_at`` NULL.  Its owner sends or settles     finish, release
                                    it; without one, the next owner settles it
                                    first
finished          DONE              ``verdict``, which may be UNKNOWN, ``outcome``,   reopen, forget
                                    ``done_at``.  In ``unheard`` until the
                                    application has acknowledged it
finished, untold  DONE              ``verdict``, ``outcome``; ``done_at`` NULL and    forget
                                    ``digest`` empty: a client has made up the key.
                                    It stays *open* until the application has it
emptied           DONE              finished, without ``intent`` and ``outcome``:     forget
                                    only its key is kept
reopened          TO DO; SENDING    as waiting or in doubt; ``intent`` has what was   own
                  after UNKNOWN     sent before
forgotten                           no row, and its ``seq`` is not given again
================  ================  ================================================  ==================

What changes them
=================

=========  ======================================================  ===================================
change     statements of PostgreSQL                                in a file, if they are others
=========  ======================================================  ===================================
enter      ``_ADD`` in adding: a batch's input.  ``_CLAIM`` in     ``_ADD`` for keys and rows, too:
           claims: a key, which may enter as sent.  ``_INSERT``    ``_insert`` in claims, ``_take_in``
           in enqueued: an outbox.  ``_PUT_BY_KEY`` in puts: a     in enqueued
           client's write without a key, which enters as sent
own        by lane: ``_TAKE`` and ``_NEW`` in lanes.  Of a key:    also ``_FREE_ALL_LANES`` in sqlite,
           ``_MOVE_ENTRY`` in claims.  Of lanes that were taken over:    opening
           ``_MOVE_KEYED`` and ``_MOVE_REST`` in lanes
send       ``_PUT_IN_DATABASE`` in puts.  Of a key: ``_BEGIN`` in  ``_PUT_IN_FILE`` in puts
           order
finish     ``_PUT_IN_DATABASE``; ``_PUT_BY_KEY``.                  ``_PUT_IN_FILE``
           ``_ENDED`` in findings: by a
           person.  ``_END`` in enqueued: of a row that a copy
           lacks
release    of a key: ``RELEASE`` and ``_RELEASE_UNSENT`` in
           claims.  By lane: ``_RELEASE``, ``_FREE_OWN`` and
           ``_DELETE_OWN`` in lanes
set aside  ``_MOVE_ASIDE`` in due
come back  ``_COME_BACK`` in due
reopen     of a key, by its next run: ``_REOPEN`` in claims.
           By ``retry``: ``_REOPEN`` in reopening, and for keys
           ``_FREE_REOPENED``.  Before another finding:
           ``_OPENED`` in findings
forget     ``drop``: nothing was sent.  ``_PRUNE``, or ``_EMPTY``  ``forget`` in sqlite, while the
           to keep the key: all in deleting.  ``_REMOVE`` in       loop is closed
           unkeyed.  ``_DELETE`` in enqueued: another write has
           its key
=========  ======================================================  ===================================

Guards differ where the databases do:

- PostgreSQL checks in each statement of an owner that its token is on the lane, and locks the lane until the
  commit: another process may take the lane over at any time.  In a file the process that has the lock of the
  file has all lanes, for as long as it is open, so ``_PUT_IN_FILE`` only checks that the entry is open.
- ``_PUT_IN_DATABASE`` also compares the key, because a connection may find an older copy of the database, where a number
  is another entry's.  A file is compared with the one that was opened (``SameFile``).
- ``_PUT_IN_DATABASE`` accepts an end that is stored already, because a reply may be lost.  A file answers always.
- What follows from an end, in ``unheard``, ``states`` and ``counts``, is done by the same statement, and in a
  file by triggers and ``_NOTE_STATES``, because each statement of Python costs the GIL.
- Whether a claimed write may enter as sent is decided before the insertion, and in a file after it, in the
  same transaction: see ``order``.
"""
