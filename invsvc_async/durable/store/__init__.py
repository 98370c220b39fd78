"""
The store of writes under client journals, batches and outboxes, in SQLite and PostgreSQL.

All SQL of its tables is in this folder.

==================  ===================================================================================
``opening``         where a store is, and what opens it
``sqlite``          connections, transactions and the group commit of a file
``postgres``        the same of a schema in a database; notifications
``tables``          the tables, and storing in them
``migrations``      what each version of the tables has changed
``members``         the processes that use a store, and which of them live
``lanes``           which process has which entries
``claims``          the entries of keys: claiming, looking, taking over, releasing
``order``           who comes before whom among the writes to one thing, and who is overtaken
``states``          what the last write left of each thing, and which may still have an effect
``scripts``         adding, reopening, dropping and pruning entries; who gives verdicts
``facts``           what holds for a whole store
``restored``        stores that went back in time, or were copied
==================  ===================================================================================
"""
