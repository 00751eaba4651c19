"""What every interpreter below ``cockpit run`` runs at its start, through PYTHONPATH.

It takes its folder off ``sys.path``, waits for an import of torch, and makes room for the
sitecustomize that the interpreter would have found without it. The agent is loaded when torch is
imported, and not before. Syntax of Python 2.7 to 3.14, for any of them may start in such a tree;
below 3.8 it only steps aside. No output but one line on stderr where the agent cannot start.
"""

import os
import sys

TYPE_CHECKING = False  # typing itself costs each interpreter 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional  # noqa: F401

HERE = os.path.dirname(os.path.abspath(__file__))
AGENT = os.path.join(os.path.dirname(HERE), "agent.py")
DIRECTORY = "COCKPIT_RUN_DIR"
"""The run's own folder; unset where nothing is kept."""
OPTIONS = "COCKPIT_RUN_OPTIONS"
"""Words with commas between: history, ptracer."""
LAUNCHERS = frozenset(("torchrun", "accelerate", "deepspeed"))
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.",
    "deepspeed.launcher.",
)
FIRST_SIGNAL = 10
"""SIGRTMIN + 10 and up for stacks: what is below belongs to glibc, systemd and Java habits."""
OLD_NAMES_BEFORE = (2, 8)
"""torch of that age knows no TORCH_FR_* names; a newer one warns of the old names."""


class TorchWatch:
    """Sits in sys.meta_path until torch is imported; finds nothing itself."""

    def find_spec(self, name, _path=None, _target=None):  # type: (str, Any, Any) -> Any
        if name != "torch":
            return None
        try:
            finder = None if is_launcher(command_line()) else self.agents_finder()
            self.remove()
            return finder and finder.find_spec(name)
        except Exception as error:  # noqa: BLE001 - the program's import goes on without us
            self.remove()
            complain(error)
            return None

    def agents_finder(self):  # type: () -> Any
        """In our place from now on; it waits until the program does import torch."""
        agent = load_agent()
        finder = agent.TorchFinder(lambda: start(agent))
        finder.install()
        return finder

    def install(self):  # type: () -> None
        sys.meta_path.insert(0, self)

    def remove(self):  # type: () -> None
        """A new list: an import in another thread goes on over the old one and skips nobody."""
        if self in sys.meta_path:
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


def complain(error):  # type: (object) -> None
    text = str(error).replace("\n", " ")[:200]
    sys.stderr.write(
        "cockpit: no agent in pid %d (%s: %s)\n" % (os.getpid(), type(error).__name__, text)
    )


def command_line():  # type: () -> List[str]
    """argv with the interpreter's own options: sys.argv has no ``-m`` any more."""
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def is_launcher(words):  # type: (List[str]) -> bool
    """torchrun and its like import torch and start the ranks, but are none."""
    for i, word in enumerate(words[1:], 1):
        if word == "-m":
            return len(words) > i + 1 and words[i + 1].startswith(LAUNCHER_MODULES)
        if word == "-c":
            return False
        if not word.startswith("-") and words[i - 1] not in ("-X", "-W"):
            return os.path.basename(word) in LAUNCHERS
    return False


def load_agent():  # type: () -> Any
    import importlib.util

    spec = importlib.util.spec_from_file_location("_cockpit_agent", AGENT)
    if spec is None or spec.loader is None:
        raise ImportError(AGENT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(agent):  # type: (Any) -> None
    """Torch has just been imported. Whatever fails here, the program goes on."""
    try:
        torch = sys.modules["torch"]
        options = os.environ.get(OPTIONS, "").split(",")
        path = agent.attach(how="launch", observe_oom=True, history="history" in options)
        use_old_names(agent.torch_release(torch))
        if "ptracer" in options:
            allow_ptrace()
        worker = agent.is_child_process()
        if path is None and not worker:
            raise OSError(agent.registry().trouble or "no private directory for its socket")
        if not worker:
            note_process(path, register_stacks())
        queue = getattr(torch.cuda, "_queued_calls", None)
        if isinstance(queue, list):
            # As in the agent: without torch's lock, which a fork may copy while it is held.
            queue.append((cuda_arrived, []))
    except Exception as error:  # noqa: BLE001 - the program goes on without an agent
        complain(error)


def cuda_arrived():  # type: () -> None
    """In any process that uses CUDA, forked and spawned ones too. An exception here would reach
    the program as DeferredCudaCallError."""
    try:
        agent = getattr(sys.modules.get("_cockpit_agent_registry"), "agent", None)
        if agent is None or agent.pid != os.getpid():
            return
        note_process(agent.path, None)
    except Exception:  # noqa: BLE001 - as above
        return


def use_old_names(release):  # type: (Any) -> None
    if release >= OLD_NAMES_BEFORE:
        return
    for new, old in (
        ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    ):
        if new in os.environ:
            os.environ.setdefault(old, os.environ[new])


def allow_ptrace():  # type: () -> None
    """PR_SET_PTRACER_ANY: py-spy may look in under kernel.yama.ptrace_scope=1."""
    import ctypes

    unsigned = ctypes.c_ulong
    libc = ctypes.CDLL(None)
    libc.prctl(ctypes.c_int(0x59616D61), unsigned(-1), unsigned(0), unsigned(0), unsigned(0))


def private_file(folder, name):  # type: (str, str) -> Optional[str]
    """Its path where the run's folder can hold it; the folder below is made."""
    top = os.environ.get(DIRECTORY)
    if not top:
        return None
    inside = os.path.join(top, folder)
    try:
        os.mkdir(inside, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return None
    return os.path.join(inside, name)


def register_stacks():  # type: () -> Optional[Dict[str, Any]]
    """All threads' stacks into a file at a signal, for when the GIL is held. Only a free signal."""
    import faulthandler
    import signal

    path = private_file("stacks", "%d.txt" % os.getpid())
    if path is None:
        return None
    taken = signals_in_use()
    number = int(signal.SIGRTMIN) + FIRST_SIGNAL
    while taken >> (number - 1) & 1:
        number += 1
    if number >= signal.SIGRTMAX:
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return None
    faulthandler.register(number, file=descriptor, all_threads=True, chain=False)
    return {"signal": number, "file": path}


def signals_in_use():  # type: () -> int
    """Bit n - 1: signal n is blocked, ignored or caught. signal.getsignal sees no C handlers."""
    taken = 0
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith((b"SigBlk", b"SigIgn", b"SigCgt")):
                taken |= int(line.split()[1], 16)
    return taken


def note_process(socket, stacks):  # type: (Optional[str], Optional[Dict[str, Any]]) -> None
    """Which processes the run has, for what is found after its end. Once per process."""
    import json

    path = private_file("processes", "%d.json" % os.getpid())
    if path is None or os.path.exists(path):
        return
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    text = json.dumps(
        {
            "pid": os.getpid(),
            "start_ticks": ticks,
            "socket": socket,
            "python": sys.executable,
            "python_version": "%d.%d.%d" % sys.version_info[:3],
            "rank": os.environ.get("RANK"),
            "stacks": stacks,
        }
    )
    partial = "%s.%d" % (path, ticks)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o600), "w") as out:
            out.write(text)
        os.rename(partial, path)
    except OSError:
        return


def watch():  # type: () -> None
    if "torch" not in sys.modules:
        TorchWatch().install()
    elif not is_launcher(command_line()):  # a .pth file of this interpreter imports torch
        start(load_agent())


def step_aside():  # type: () -> None
    """Runs the sitecustomize that comes after ours, under its name.

    Where there is none, or it raises, the exception goes on to the interpreter, which handles it as
    it would have without us. A missing entry in sys.modules would be a KeyError in every process.
    """
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


def is_ours():  # type: () -> bool
    """Only as the interpreter's own start-up module: any other import of this file does nothing."""
    return __name__ == "sitecustomize"


if is_ours():
    if sys.version_info >= (3, 8):
        try:
            watch()
        except Exception as error:  # noqa: BLE001 - the interpreter starts without us
            complain(error)
    step_aside()
