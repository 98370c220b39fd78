"""
The names of facts that statements have in their texts, and operations among their values.

A fact holds for the whole store (``facts``).  A name that only one module uses stands there.
"""

from __future__ import annotations

from typing import Final

# A batch, and an outbox in a file, has a fact ``credential``: the fingerprint of the one that it was begun
# with (``check_client``).  The schema of an outbox has a fact ``credential FINGERPRINT`` for each that has
# opened it (``NOTE_CREDENTIAL``).  That of client journals has one without a fingerprint: there, each lane
# has its own.

# The version of the package's names of things that the entries have; there is none in a store of 0.1.0
# (``earlier_names``).
NAMES: Final = "names"
NAMES_OF_TODAY: Final = "2"
# Of a file: which process gives the verdicts of what is sent now.
TAKER: Final = "taker"
# Of a store that was restored from a copy: its ``Mark`` (``restored``).
MARK: Final = "restored"
# For each input that is being read there is a fact, named after the process that reads it; its value is when
# that was begun (s).
INPUT: Final = "input "
# The last error of ``on_result`` for a verdict is a fact: its name is this text, the time of the verdict, in
# epoch ms with so many digits, and the key.
FAILED_TO_TELL: Final = "untold "
DIGITS_OF_TIME: Final = 13
