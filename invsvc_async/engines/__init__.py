"""
Tables of writes on the engines that divide, retry and scale them; the journal has keys, fencing and verdicts.

One module for each engine, which imports that engine; this one imports nothing. See ``engines.rows``.
"""
