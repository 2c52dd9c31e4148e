"""The lock that a thread holds while it changes rows, operators or the context: load_ops, configure, and kiln.torch's enable and define.

A change has several steps, and other changes must not come between them.  A fork waits for the lock, because a child that is forked
in the middle of a change would never see its end.  The lock may be taken again by the thread that holds it.
"""
import os
from _thread import RLock

lock = RLock()
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
