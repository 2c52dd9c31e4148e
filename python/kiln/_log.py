"""kiln.configure(log=...): who is told the messages of the library, and the thread that tells.

Messages come from any thread, at times when no Python code may run.  The C side keeps them, and a daemon thread calls the log with
them, in their order.  The thread begins with the first log.  It is begun anew in a forked child, and ends before the interpreter does.
"""
import atexit
import os
import threading

from . import _kiln

_WAIT = 1  # seconds that wait_idle and the interpreter's end wait for a log that is busy
_LEVELS = (40, 30, 20, 10)  # of logging: ERROR, WARNING, INFO, DEBUG
_telling = threading.RLock()
_tell = _thread = None


def _as_function(log):
    """A function of level, topic and text."""
    if callable(log):
        return log
    if callable(getattr(log, "log", None)):  # a logging.Logger, or a LoggerAdapter
        return lambda level, topic, text: log.log(_LEVELS[level], "%s: %s", topic, text)
    raise TypeError(f"log must be a function of level, topic and text, a logging.Logger or False, not {log!r}")


def check(log):
    """Raises TypeError if log is nothing that set_log takes, and RuntimeError if it takes none here."""
    if log is not False:
        _as_function(log)
    if not _kiln.in_main_interpreter:
        raise RuntimeError("a log is given in the main interpreter only")


def set_log(log):
    """Sends all further messages to log.  If log is False, delivers those that wait to the old log, then stops logging."""
    global _tell
    if log is False:
        tell_all()
        _kiln.log_hear(False)
        _tell = None
        return
    function = _as_function(log)
    if _thread is None:
        _begin()
    _tell = function
    _kiln.log_hear(True)


def _begin():
    global _thread
    _kiln.log_begin()
    _thread = threading.Thread(target=_run, name="kiln-log", daemon=True)
    _thread.start()


def _run():
    while _kiln.log_wait():
        tell_all(-1)


def tell_all(wait=_WAIT):
    """Tells the messages that wait, after those that another thread is telling; gives up after `wait` seconds."""
    if not _telling.acquire(timeout=wait):
        return
    try:
        function = _tell
        for message in _kiln.log_take() if function else ():
            _kiln.log_tell(function, message)
    finally:
        _telling.release()


@atexit.register
def _end():
    """Messages of what is built from here on are for nobody."""
    global _tell, _thread
    if _thread is None:
        return
    tell_all()
    _kiln.log_hear(False)
    _kiln.log_end()
    _thread.join(_WAIT)
    _tell = _thread = None


def _after_fork():
    global _telling, _thread
    _telling = threading.RLock()
    if _thread is not None:
        _thread = None
        _begin()


os.register_at_fork(after_in_child=_after_fork)
