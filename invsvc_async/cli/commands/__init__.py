"""Commands of ``invsvc``, one module each."""
