"""An interpreter that has imported NumPy and PyTorch, and runs each code it is given in a copy of itself.

Importing PyTorch takes seconds, more so under sanitizers; a fork of a process that has done so takes none.  Kiln is not
imported here, so each copy loads it anew, and each ends as an interpreter does: `__main__` is let go, then leaks are judged.
Server is the side that asks.  As a program, this file reads a line of JSON (the code, a file for its output) and answers with
the exit status, as subprocess states it.
"""
import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import time


class Server:
    process = None

    def start(self):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1, start_new_session=True)

    def run(self, code, output, timeout):
        """The exit status of the code; its output and errors go to the file."""
        if not self.process:
            self.start()
        self.process.stdin.write(json.dumps([code, str(output)]) + "\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            answer = self.process.stdout.readline() if selector.select(timeout) else ""
        if not answer:
            self.kill()
            raise RuntimeError(f"the code did not end within {timeout} s, or the server died")
        return int(answer)

    def kill(self):
        """The server and its copies: they share a session of their own."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.process = None

    def close(self):
        if self.process:
            self.process.communicate()
            assert self.process.returncode == 0


def let_threads_end():
    """Waits until no thread of this process has begun or ended for a while.

    LeakSanitizer of clang 14 crashes now and then ("Tracer caught signal 11") if it looks at a thread that is about to end.
    """
    seen, same = None, 0
    for _ in range(200):
        now = set(os.listdir("/proc/self/task"))
        seen, same = now, same + 1 if now == seen else 0
        if same == 3:
            return
        time.sleep(0.005)


def next_code():
    """Serves until it is a copy, which gets the code that it has to run; ends where there is no more to serve."""
    for line in sys.stdin:
        code, output = json.loads(line)
        child = os.fork()
        if child == 0:
            for fd, path in ((0, os.devnull), (1, output), (2, output)):
                opened = os.open(path, os.O_RDONLY if fd == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.dup2(opened, fd)
                os.close(opened)
            return code
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # nothing that was done here is to be judged


if __name__ == "__main__":
    import numpy  # noqa: F401
    import torch  # noqa: F401
    sys.path[0] = ""  # as after -c
    if "ASAN_OPTIONS" in os.environ:
        atexit.register(let_threads_end)
    exec(compile(next_code(), "<string>", "exec"))  # into __main__, which goes last
