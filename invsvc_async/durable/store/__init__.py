"""
The store of writes under client journals, batches and outboxes, in SQLite and PostgreSQL: one deep module.

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
entries                ``changes``: adding, reopening, dropping, pruning.  ``unkeyed``: those of a client
                       without keys.  ``lists``: what people see
what is not due    ``due``: writes that wait for their time, and those behind them
whose turn it is       ``turns``: the teams that have open writes, and the next ones of each
a batch                ``inputs``: who reads one, and what is added of it
an outbox              ``enqueued``: by transactions of the application.  ``application_table``: in the
                       application's own SQLite file
an older copy          ``restored``: recognising it, and the notes about it
=====================  ================================================================================

Beneath are ``tables`` (the tables, and storing in them), ``migrations`` (what each version of them has
changed), and ``sqlite`` and ``postgres`` (connections, transactions, group commit, notifications).
"""
