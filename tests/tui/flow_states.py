"""Guided flows as an engine would show them, made by hand; and its answers, given by hand."""

from __future__ import annotations

from typing import Any

from cockpit.engine.protocol import AnswerFlow, CancelFlow, Progress, Reply, StartFlow
from cockpit.model.flow import (
    Ask,
    Choose,
    Confirm,
    Done,
    Ended,
    FlowAnswer,
    FlowRequest,
    FlowState,
    Found,
    InTerminal,
    Prompt,
)
from cockpit.model.remedy import Compared, Preview, TerminalCommand, UndoRecord
from tests.tui.screen_text import Stage

FOUND = (
    Found(
        mark="bad",
        what="What failed?",
        sentence="2.0 GiB were asked for with 0.4 GiB free of 79.1 GiB. The peak is too high.",
    ),
    Found(mark="ok", what="Whose memory?", sentence="Nobody else holds memory on GPU 3 now."),
    Found(mark="ok", what="Strays?", sentence="None holds memory there."),
    Found(mark="ok", what="A memory limit?", sentence="The process may use the whole card."),
    Found(
        mark="ok",
        what="Fragmentation?",
        sentence="0.8 GiB reserved but unused, 2.0 GiB asked for: no.",
    ),
    Found(
        mark="note", what="Growing?", sentence="+0.0 MiB a step over 400 steps: the peak is steady."
    ),
    Found(mark="unknown", what="Since when?", sentence="The log has no times."),
)

RERUN = Preview(
    title="halve the batch, double the accumulation",
    form="command",
    lines=(
        "cd /home/ml1/exp && CUDA_VISIBLE_DEVICES=0,1,2,3 cockpit run --name train --background"
        " -- torchrun --nproc-per-node 4 train.py --bs 16 --accum 2",
        "- torchrun --nproc-per-node 4 train.py --bs 32 --accum 1",
        "+ torchrun --nproc-per-node 4 train.py --bs 16 --accum 2",
        "# the run's own environment is kept",
    ),
    risk="confirm",
    loses="nothing: the run has ended; its last checkpoint is step 20,000",
    verify="the peak is watched for 50 steps",
    because="Activations shrink with the batch; the effective batch stays the same: about −34 GiB.",
)
DIFF_LINES = (
    "--- a/train.py",
    "+++ b/train.py",
    "@@ -149,4 +149,5 @@",
    " for step, batch in enumerate(loader):",
    "-    loss = model(batch)",
    "+    with torch.autocast('cuda', torch.bfloat16):",
    "+        loss = model(batch)",
    "     loss.backward()",
)
PATCH = Preview(
    title="compute in bf16: train.py",
    form="diff",
    lines=DIFF_LINES,
    risk="confirm",
    typed="train.py",
    loses="bit-identical results with the steps before",
    verify="the file is read again; a run shows whether it fits",
    because="Halves the activations on compute capability 8.0 and newer.",
    undo="the old file is kept, and put back where nobody has changed it since",
)
SUDO = Preview(
    title="let the driver keep its state",
    form="command",
    lines=("sudo nvidia-smi -pm 1",),
    risk="admin",
    loses="nothing",
    verify="nvidia-smi -q says Persistence Mode: Enabled",
    because="The first CUDA call of each run waits 2.3 s for the driver.",
    terminal=TerminalCommand(argv=("sudo", "nvidia-smi", "-pm", "1")),
)
REFUSED = Preview(
    title="start it on the freest GPU",
    form="command",
    lines=("cd /home/ml1/exp && CUDA_VISIBLE_DEVICES=4 cockpit run -- python train.py",),
    risk="confirm",
    loses="nothing",
    verify="the peak is watched for 50 steps",
    because="There the other processes are not in the way.",
    refusal="pid 4711 still runs and holds its GPU: end it first, then start it again.",
)
KILL = Preview(
    title="end stray 31337",
    form="signal",
    lines=("SIGTERM to 31337 (ml1) python -m ipykernel_launcher", "holds 38.4 GiB on GPU 6"),
    risk="confirm",
    loses="what this notebook kernel has in memory",
    verify="the process is gone, and its memory has come back",
    because="Its parent is gone and it computes nothing.",
)
FREED = Done(
    title="end stray 31337",
    lines=KILL.lines,
    ok=True,
    verified=True,
    sentence="freed 38.4 of 38.4 GiB in 0.3 s",
    compared=(
        Compared(what="memory of GPU 6", before="38.9 GiB", after="0.5 GiB"),
        Compared(what="processes on it", before="1", after="0"),
    ),
    pids=(31337,),
)
PATCHED = Done(
    title="compute in bf16: train.py",
    lines=DIFF_LINES,
    ok=True,
    verified=None,
    sentence="train.py was changed; only a run shows whether it fits.",
    undo=UndoRecord(kind="patch", title="compute in bf16: train.py", data={}),
)
RAN = Done(
    title="run it again after: compute in bf16",
    lines=("cd /home/ml1/exp && cockpit run --name train --background -- python train.py",),
    ok=True,
    verified=False,
    sentence="It ran out of memory again at step 3.",
    compared=(Compared(what="peak", before="79.1 GiB", after="76.4 GiB"),),
    path="/home/ml1/.local/state/cockpit/runs/20261130-120102-train",
    output=(
        "step 1 loss 8.1",
        "step 2 loss 7.9",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB.",
    ),
)
REPORT = """# Out of memory

pid 4711 · rank 3

## Found

- **What failed?** 2.0 GiB were asked for
- **Strays?** None

```
cd /home/ml1/exp && cockpit run -- python train.py
```
"""
OPTIONS = (RERUN, PATCH, REFUSED, SUDO)


def state(prompt: Prompt, **fields: Any) -> FlowState:
    """Out of memory, at this prompt."""
    given = {
        "id": "f1",
        "flow": "oom",
        "title": "Out of memory",
        "subject": "pid 4711 · rank 3 · train.py:156",
        "found": FOUND,
        **fields,
    }
    return FlowState(prompt=prompt, **given)


def asking(*texts: str) -> FlowState:
    return state(Ask(question="Which run is it about?", texts=texts or ("this one", "that one")))


def choosing(*options: Preview, **fields: Any) -> FlowState:
    undoable = tuple(d.title for d in reversed(fields.get("done", ())) if d.undo is not None)
    return state(Choose(options=options or OPTIONS, undoable=undoable), **fields)


def confirming(preview: Preview, **fields: Any) -> FlowState:
    return state(Confirm(preview=preview), **fields)


def in_terminal(preview: Preview = SUDO) -> FlowState:
    assert preview.terminal is not None
    return state(InTerminal(command=preview.terminal, preview=preview))


def ended(verified: bool = True, report: str = REPORT, **fields: Any) -> FlowState:
    fields.setdefault("done", (FREED,))
    sentence = "freed 38.4 of 38.4 GiB in 0.3 s"
    return state(Ended(verified=verified, sentence=sentence, report=report), **fields)


# -- the engine's part


def waiting(play: Stage) -> Any:
    """The StartFlow or AnswerFlow that has no reply yet; None where there is none."""
    session = play.app._session
    for message in session._link.sent:
        if isinstance(message, StartFlow | AnswerFlow) and message.id in session._waiting:
            return message
    return None


async def reply(play: Stage, answer: FlowState | None = None, error: str | None = None) -> Any:
    """The engine answers what waits; what was asked comes back."""
    await play.pilot.pause()
    asked = waiting(play)
    assert asked is not None, "nothing was asked"
    play.app._session._waiting[asked.id].set_result(Reply(id=asked.id, flow=answer, error=error))
    for _ in range(3):
        await play.pilot.pause()
    return asked


async def say(play: Stage, *sentences: str) -> None:
    """Progress of what runs."""
    asked = waiting(play)
    for sentence in sentences:
        play.app._session._dispatch(Progress(id=asked.id, sentence=sentence))
    await play.pilot.pause()
    await play.pilot.pause()


def answers(play: Stage) -> list[FlowAnswer]:
    return [one.answer for one in play.app._session._link.sent if isinstance(one, AnswerFlow)]


def requests(play: Stage) -> list[FlowRequest]:
    return [one.request for one in play.app._session._link.sent if isinstance(one, StartFlow)]


def cancels(play: Stage) -> list[str]:
    return [one.flow for one in play.app._session._link.sent if isinstance(one, CancelFlow)]


async def opened(play: Stage, first: FlowState) -> None:
    """The page with this state in front."""
    await play.tick(3)
    await play.pilot.press("exclamation_mark")
    await reply(play, first)
