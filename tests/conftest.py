"""What every test rests on."""

from __future__ import annotations

import signal
import threading

# A shell that runs the suite in the background has it ignore Ctrl-C, which the programs that tests start would
# inherit: those that are interrupted on purpose would never end.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
