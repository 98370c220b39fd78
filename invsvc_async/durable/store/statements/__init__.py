"""
The SQL of the tables of writes: each statement is a constant, beside a sentence of what it does or guards.

Statements are apart from operations, which are functions of the modules in the folder above: ``yield
key_sql.MOVE_ENTRY, (seq, to)``.  An operation says in words what it guards, which errors it raises,
and why it runs these statements in this order.  Here is what the database does.

==============  ======================================================================================
``store_sql``   of the whole store: where it is, facts, older copies, processes, lanes, inputs
``entry_sql``   of entries: entering, waiting, the next ones, being sent, told, reopened, deleted; lists
``key_sql``     of the keys of users: claims, the order of the writes to a thing, findings of people
``schema_sql``  tables and triggers, and what each version of them has changed
==============  ======================================================================================

How to read a statement
=======================

It is for both databases, unless its name or its comment, or the heading above it, says otherwise.  ``$1`` is
the first value.  A few words in braces stand for what differs between the databases: ``{rows 1 a:text
b:bigint}`` is a table with the columns *a* and *b*, of the first value, a list of tuples; ``{any 1 text}`` is
``= ANY`` of the first value, a list.  ``storage/dialect`` explains these words.  Others are chosen by each
store (``dialect_in`` in ``schemas``, ``DIALECT`` in ``sqlite``):

=====================  ================================================================================
``{s}``                the schema of the store and a dot; nothing in a file
``{now}``, ``{ms}``    the time by the store's clock, in seconds; in milliseconds
``{durably}``          makes the commit wait for the disk, in PostgreSQL; nothing is sent before
``{part}``             the part of the counts to which this process adds
``{told}``             in a client's journal, keeps verdicts out of ``unheard``
``{at}``               the function that finds a text in another one
``{serial}``, …        in the tables: see ``schema_sql``
=====================  ================================================================================

A statement that asks whether a process lives (``dead``, ``has_living_owner`` and such, of ``store_sql``) has
the silence of the store (s) as its first value.

In an f-string, these braces are doubled.  What stands in single braces there is a fragment: a condition of
``conditions``, a list of columns of ``durable/entry``, a constant of the module that begins with ``_``, or
the result of a function such as ``dead``.  ``{schema}`` is filled by ``format``.

The word FILE in a name: the statement is only for a store in a file, whose own connection may run it, with
``?`` for a value.  A name that begins with LOCK: the rows stay as they are until the commit; that is for
PostgreSQL, since a file has one writer.  (``LOCK_FOR_ENQUEUING`` locks numbers instead.)  A *condition* is
what follows WHERE in the statement by which a store reads entries (``entry_sql.in_database``, ``in_file``).
"""
