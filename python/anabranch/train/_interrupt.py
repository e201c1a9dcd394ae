"""Ctrl-C in a training: noted when it comes, and raised where a training may be left.

Python raises it wherever the program is just then, and within a callback, of which JAX has some while it compiles, it
is printed and lost. So the first one only asks to stop, which trainings look at between steps; a second one is raised
at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
"""The exit code, as the command's."""

_was_pressed = False


@contextmanager
def noted() -> Iterator[None]:
    """Within, Ctrl-C waits for :func:`look`. A program that has a handler of its own keeps it, as other threads do."""
    global _was_pressed
    is_ours = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_ours:
        yield
        return
    _was_pressed = False
    signal.signal(signal.SIGINT, _press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _was_pressed = False


def look() -> None:
    """Where a training may be left.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if _was_pressed:
        raise KeyboardInterrupt


def _press(number: int, frame: Any) -> None:
    global _was_pressed
    if _was_pressed:
        raise KeyboardInterrupt
    _was_pressed = True
    # Who was just printing holds what Python prints with.
    os.write(2, b"\nstopping as soon as this step of the training is over; Ctrl-C again stops at once\n")
