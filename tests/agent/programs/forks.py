"""Forks while the agent is there (an empty folder: without it), "alone" or beside "threads".

It says whether its filters of warnings are as they were, before it ends. A warning that was shown
once by its own code must not be shown again because of us.
"""

import os
import sys
import threading
import time
import warnings

import cockpit.agent.agent as agent


def own_warning():
    warnings.warn("of the program itself", UserWarning, stacklevel=1)


def fork():
    child = os.fork()
    if child == 0:
        os._exit(len(os.listdir("/proc/self/task")))
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 1


own_warning()
before = list(warnings.filters)
if sys.argv[1]:
    agent.attach(directory=sys.argv[1])
if sys.argv[2] == "threads":
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
for _ in range(3):
    fork()
    own_warning()
warnings.simplefilter("always")  # comes first, until the next fork
fork()
own_warning()
warnings.filters.remove(("always", None, Warning, None, 0))
assert agent.detach()
print(warnings.filters == before, flush=True)
