"""Checks that several flows share: what the diagnosis, the checkup and the live findings say."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.flows import kills
from cockpit.flows.flow import Judged, Known, Mark, Question, is_about
from cockpit.model.flow import Found
from cockpit.model.process import Process
from cockpit.model.text import clean, plural, sentence

ANOTHER_LOG = (
    "Give the log of the run that failed (--log FILE), or its command line (-- python train.py "
    "...)."
)
MOST_PROCESSES = 8
_MARKS: dict[str, Mark] = {
    "pass": "ok",
    "warn": "note",
    "fail": "bad",
    "not_applicable": "unknown",
}


def diagnosed(known: Known) -> Judged:
    """What the log, or the live finding that the flow starts from, comes to."""
    finding = known.finding
    if finding is None:
        return None
    if finding.cause == "unknown":
        words = clean(finding.title) + "."
        return "unknown", words if "fatal" in finding.facts else f"{words} {ANOTHER_LOG}"
    if known.ended_well:
        return "ok", "The run ended with status 0, and what it has printed shows no failure."
    if finding.cause == "benign" and known.request.log is None:  # a run that goes on may hang
        return "note", "What it has printed so far shows no failure."
    if finding.cause in ("benign", "recovered"):
        return "ok", clean(finding.title) + "."
    return "bad", f"{clean(finding.title)}. {clean(finding.explanation)}"


def quiet(known: Known, found: tuple[Found, ...]) -> Iterator[Found]:
    """That a log shows no failure that is known, in a flow that asks it for its own kind only."""
    judged = diagnosed(known) if known.cause in ("unknown", "benign") else None
    if judged is not None and all(one.sentence != judged[1] for one in found):
        yield Found(mark=judged[0], what="What does the log say?", sentence=judged[1])


def place(known: Known) -> Judged:
    """File and line, where something names them."""
    where = known.fact("place")
    if not isinstance(where, str):
        return None
    return "note", f"{clean(where)}."


def checkup(known: Known) -> Iterator[Found]:
    """The doctor's ladder: all that is not well, and in one row how much is."""
    if known.checkup is None:
        return
    passed = [one for one in known.checkup.checks if one.status == "pass"]
    if passed:
        names = ", ".join(clean(one.title) for one in passed)
        are = "is" if len(passed) == 1 else "are"
        what = f"{plural(len(passed), 'step')} {are} well"
        yield Found(mark="ok", what=what, sentence=f"{names}.")
    for one in known.checkup.checks:
        if one.status in ("warn", "fail"):
            yield Found(mark=_MARKS[one.status], what=one.title, sentence=clean(one.sentence))


def live(known: Known) -> Iterator[Found]:
    """Live findings of this process or its card, other than the one that the flow starts from."""
    for one in known.snapshot.findings:
        if one is known.finding or one.flow != known.request.flow:
            continue
        is_ours = one.pid is None or is_about(one, known.request.pid)
        if is_ours and one.gpu in (None, known.gpu):
            words = [clean(part.text) for part in one.evidence[:2]]
            yield Found(mark="bad", what=clean(one.title), sentence=" ".join(words))


def command_line(known: Known) -> Judged:
    """A log alone does not say how its run was started."""
    asked = known.request
    if known.command is not None or asked.command or asked.log is None or not known.cause:
        return None
    if known.cause in ("unknown", "benign"):
        return None
    return "note", (
        "The run's command line is not known. Give it after `--` (cockpit fix ... -- python "
        "train.py ...) and it can be started again from here."
    )


HARDWARE = frozenset(
    {
        *("gpu_off_bus", "ecc_contained", "ecc_dbe", "remap_failure", "gsp_timeout"),
        *("nvlink_fault", "device_state_bad", "reset_blocked"),
    }
)


def now(known: Known, judged: Judged, contradicted_by: frozenset[str] = frozenset()) -> Judged:
    """What is seen of this machine, beside a log that may be of another machine or day.

    Left out where "ok" would contradict the log's own cause: here and now it proves nothing.
    """
    if judged is None or not known.is_of_log:
        return judged
    mark, words = judged
    if mark == "ok" and known.cause in contradicted_by:
        return None
    return ("note" if mark == "bad" else mark), f"Now, on this machine: {words}"


def driver(known: Known) -> Judged:
    """Why NVML cannot be used; the steps of a checkup say it themselves."""
    error = known.snapshot.driver.error
    if error is None or known.checkup is not None:
        return None
    return "bad", clean(sentence(error.message))


def works(known: Known) -> str:
    """That CUDA works is said only where the small model was trained by it, and never guessed."""
    checks = known.checkup.checks if known.checkup is not None else ()
    if any(one.id == "small_success" and one.status == "pass" for one in checks):
        return "CUDA works for this Python: the small model trained on the GPU."
    if known.checkup is None:
        return "Whether CUDA works is not known: the steps could not be looked at here."
    return "No step fails, but the small model was not trained: that CUDA works is not proven."


def xids(known: Known) -> Judged:
    """What the driver reported of this card lately."""
    return now(known, _xids(known), HARDWARE)


def _xids(known: Known) -> Judged:
    if known.snapshot.driver.error is not None:
        return None
    rows = [
        one for one in known.snapshot.events if one.xid is not None and known.gpu in (None, one.gpu)
    ]
    if not rows:
        return "ok", "The driver reported none since the cockpit looks."
    return "bad", clean(rows[-1].sentence)


def memory_health(known: Known) -> Judged:
    """Uncorrected ECC errors and row remapping."""
    return now(known, _memory_health(known), HARDWARE)


def _memory_health(known: Known) -> Judged:
    if known.snapshot.driver.error is not None:
        return None
    for one in known.snapshot.gpus:
        if known.gpu not in (None, one.index):
            continue
        if one.remapped_rows_failed:
            return "bad", f"GPU {one.index}: row remapping failed; the card has to be replaced."
        if one.remapped_rows_pending:
            return "bad", f"GPU {one.index}: a row remap is pending; it needs a reset when idle."
        if one.ecc_uncorrected:
            return "bad", f"GPU {one.index}: {one.ecc_uncorrected} uncorrected memory errors."
    return "ok", "No uncorrected error and no remap is on record."


def which_process(known: Known) -> tuple[tuple[str, str], ...]:
    """Whom the flow may be about, where nothing says it: runs that are looked into, then those of
    the user that hold memory. Of the ranks of a job the first."""
    if known.request.has_subject:
        return ()
    attached = {one.pid for one in known.snapshot.runs if one.state == "running"}
    rows = [one for one in known.snapshot.processes if known.may_end(one) and not one.stray]
    rows = [one for one in rows if one.pid in attached or one.devices]
    rows.sort(key=lambda one: (one.pid not in attached, one.rank or 0, -(one.vram_bytes or 0)))
    jobs = {(one.ppid, one.world_size) if one.world_size else one.pid: one for one in rows[::-1]}
    shown = [one for one in rows if one in jobs.values()][:MOST_PROCESSES]
    if not shown:
        return ()
    options = tuple((f"{one.pid}:{one.start_ticks}", _job_words(one)) for one in shown)
    return (*options, ("", "none of these"))


def _job_words(process: Process) -> str:
    world = process.world_size or 1
    ranks = f", {plural(world, 'rank')}" if world > 1 else ""
    return f"{kills.named(process)}{ranks}"


WHICH = Question("process", "Which process is it about?", which_process)
