"""Copied to sitecustomize.py for Python under AddressSanitizer: before a process ends, waits until no thread starts or ends.

LeakSanitizer of clang 14 stops all threads and reads their memory when a process ends.  It breaks down ("Tracer caught signal 11") if a
thread is starting or ending at that moment, since the thread's record is incomplete then.
"""
import atexit
import os
import time

STILL, AT_MOST = 5, 200  # looks without a change, and looks at all, of 10 ms


def wait_for_threads():
    before, still = None, 0
    for _ in range(AT_MOST):
        now = sorted(os.listdir("/proc/self/task"))
        still = still + 1 if now == before else 0
        if still == STILL:
            return
        before = now
        time.sleep(0.01)


atexit.register(wait_for_threads)
