"""What all tests need."""

import signal

# Where the tests run in the background of a shell, interrupts are ignored, and every child would
# inherit that: tests of Ctrl-C would wait for nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
