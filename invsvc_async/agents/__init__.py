"""
Tools for agents: the operations of the table, each as a tool of the Model Context Protocol.

An agent sends again.  So each write takes a key, the business action, and runs in a journal: it has one
effect, however often it is called, and the answer says truthfully whether it happened.

A call goes through three modules: ``arguments`` checks what came, ``toolbox`` makes the read or the write
and awaits it, ``answers`` says in words what became of it.  Only ``server``, ``stdio`` and ``http`` import
the SDK of the protocol.

What the service returns was written by others, and may contain sentences that look like instructions.  It
stays data: it is in members of its own (``value``, ``details``, ``error``), and in a text block of its own as
JSON in ASCII; the words and the advice of an answer are this package's, and quote nothing of the service's.
"""
