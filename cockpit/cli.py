"""Arguments → command. Everything else is imported late, by the command that needs it."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from cockpit import __version__
from cockpit.errors import CockpitError, UsageError
from cockpit.settings import Settings, load

if TYPE_CHECKING:
    from cockpit.model.flow import FlowRequest

Run = Callable[[argparse.Namespace, Settings], int]
"""A command: its exit status."""

_DESCRIPTION = "A cockpit for people who train on NVIDIA GPUs: see, find, fix, with proof."
_FLOWS = ("oom", "no-cuda", "kernel-fault", "slow", "multi-gpu", "vram-held", "first-run")
_EPILOG = """\
exit status: 0 done; 1 done, but the answer is bad; 2 wrong usage; 3 no usable NVIDIA driver or GPU;
4 not permitted or refused by policy; 5 the target does not exist (any more)"""


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    _open_streams()
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a Latin-1 locale has no "–"
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # `cockpit ps | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except CockpitError as error:
        _complain(error)
        return error.exit_code
    except OSError as error:  # a full disk under stdout, say
        _complain(error)
        return 1
    except KeyboardInterrupt:
        return 130


def _open_streams() -> None:
    """`cockpit … <&-`: Python has None for a closed stream, and the next file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this number
            os.set_inheritable(descriptor, descriptor == number)
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", closefd=False))


def _complain(error: Exception) -> None:
    """Line by line: what is told may have names and words from outside in it."""
    from cockpit.model.text import clean

    lines = (clean(line) for line in str(error).split("\n"))
    sys.stderr.write("cockpit: " + "\n".join(lines) + "\n")


def _parse(argv: list[str]) -> argparse.Namespace:
    """``fix … -- CMD``: what follows the dashes is the run's own, options and all."""
    words: list[str] = []
    at = argv.index("--") if "--" in argv else len(argv)
    if at < len(argv) and "fix" in argv[:at] and _command_of(argv[:at]) == "fix":
        argv, words = argv[:at], argv[at + 1 :]
    arguments = _parser().parse_args(argv)
    if arguments.command == "fix":
        arguments.words = words
    return arguments


def _command_of(argv: list[str]) -> str:
    """`run --name fix` is no fix: which word is the command, the options before it tell."""
    parser = argparse.ArgumentParser(prog="cockpit", add_help=False)
    _add_options(parser)
    parser.add_argument("command")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    return str(parser.parse_known_args(argv)[0].command)


def _dispatch(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    if arguments.once:
        return _snapshot(arguments, settings)
    if arguments.command is None:
        return _open_tui(settings)
    run: Run = arguments.run
    return run(arguments, settings)


# -- commands: each imports its own module


def _snapshot(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import snapshot

    return snapshot.run(settings, getattr(arguments, "form", None) or "text")


def _ps(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import ps

    return ps.run(
        settings,
        json=arguments.json,
        gpu=arguments.gpu,
        user=arguments.user,
        stray=arguments.stray,
    )


def _kill(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import kill

    return kill.run(
        settings,
        arguments.pid,
        signal=arguments.signal,
        grace_s=arguments.grace,
        yes=arguments.yes,
        job=arguments.job,
    )


def _attach(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import attach

    return attach.attach(settings, arguments.pid, yes=arguments.yes)


def _detach(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import attach

    return attach.detach(settings, arguments.pid)


def _diagnose(arguments: argparse.Namespace, _: Settings) -> int:
    from cockpit.commands import diagnose

    return diagnose.run(arguments.file, pid=arguments.pid, json=arguments.json)


def _fix(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import fix

    request = fix.request_of(
        arguments.flow,
        pid=arguments.pid,
        log=arguments.log,
        words=arguments.words,
        dry_run=arguments.dry_run,
    )
    if arguments.plain or arguments.dry_run:
        report = arguments.report
        return fix.run(settings, request, dry_run=arguments.dry_run, report=report)
    if arguments.report is not None:
        raise UsageError("`--report` goes with `--plain`; in the TUI `w` writes the report.")
    return _open_tui(settings, request)


def _bundle(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import bundle

    if arguments.show:
        return bundle.show(arguments.file)
    return bundle.run(settings, arguments.file, log=arguments.log, seconds=arguments.seconds)


def _doctor(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import doctor

    return doctor.run(settings, json=arguments.json, python=arguments.python, pid=arguments.pid)


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    from cockpit.commands import run

    return run.run(
        settings,
        arguments.words,
        name=arguments.name,
        background=arguments.background,
        history=arguments.history,
        coredump=arguments.coredump,
        ptracer=arguments.ptracer,
    )


def _open_tui(settings: Settings, flow: FlowRequest | None = None) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "") in (
        "",
        "dumb",
    ):
        _check_source(settings)
        raise UsageError(
            "The cockpit needs a terminal (stdin, stdout, and a TERM that is not `dumb`). "
            "For a look without one: cockpit snapshot"
            + ("; for a guided fix: cockpit fix --plain" if flow is not None else "")
        )
    from cockpit.commands.ask import open_link

    # The engine first: it reads the GPUs while textual is imported here.
    link = open_link(settings)
    from cockpit.tui.startup import prepare

    prepare(color=settings.color)
    from cockpit.tui.app import run

    return run(settings, link, flow)


def _check_source(settings: Settings) -> None:
    """What is wrong with a demo or a replay is told first. Raises UsageError."""
    if settings.demo is not None or settings.replay is not None:
        from msgspec.structs import replace

        from cockpit.commands.ask import one_snapshot

        one_snapshot(replace(settings, record=None))


def _settings(arguments: argparse.Namespace) -> Settings:
    flags = {
        "interval_s": arguments.interval,
        "only": arguments.only,
        "readonly": arguments.readonly or None,
        "ascii": arguments.ascii or None,
        "color": False if arguments.no_color else None,
        "demo": arguments.demo,
        "replay": arguments.replay,
        "record": arguments.record,
    }
    return load(flags, arguments.config, dict(os.environ))


def _indices(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of GPU indices like 0,2") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cockpit",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(parser)
    _add_commands(parser)
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Those of the cockpit itself, before its command."""
    add = parser.add_argument
    add("--version", action="version", version=f"gpu-cockpit {__version__}")
    add("-i", "--interval", type=float, metavar="S", help="seconds between readings (default 1)")
    add("-o", "--only", type=_indices, metavar="0,2", help="only these GPUs")
    add("--readonly", action="store_true", help="offer no action at all")
    add("--ascii", action="store_true", help="no characters beyond ASCII")
    add("--no-color", action="store_true", help="no colours (NO_COLOR does the same)")
    add(
        "--demo",
        nargs="?",
        const="busy",
        metavar="SCENARIO",
        help="a simulated machine: busy, stray, oom, throttle, lost, big, nodriver …; "
        "`auto`: only where there is no NVIDIA driver",
    )
    add("--replay", metavar="FILE", help="play a recording")
    add("--record", metavar="FILE", help="write a recording while running")
    add("--config", metavar="FILE", help="another config file")
    add("-1", "--once", action="store_true", help="the same as `cockpit snapshot`")


def _add_commands(parser: argparse.ArgumentParser) -> None:
    """In the order of the help."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def new(name: str, run: Run, what: str, usage: str | None = None) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=what, usage=usage)
        made.set_defaults(run=run)
        return made

    _snapshot_arguments(new("snapshot", _snapshot, "one reading of everything"))
    _ps_arguments(new("ps", _ps, "who holds GPU memory"))
    _kill_arguments(new("kill", _kill, "end processes, and see their memory come back"))
    attach = new("attach", _attach, "look inside a running PyTorch process")
    attach.add_argument("pid", type=int)
    attach.add_argument("--yes", action="store_true", help="answer yes to the question")
    detach = new("detach", _detach, "leave it, without a trace")
    detach.add_argument("pid", type=int)
    _diagnose_arguments(new("diagnose", _diagnose, "why a run failed, from what it printed"))
    usage = "cockpit fix [FLOW] [--pid PID] [--log FILE] [--plain [--report FILE]] [--dry-run] "
    usage += "[-- CMD…]"
    what = "be led through a fix, with proof that it helped"
    _fix_arguments(new("fix", _fix, what, usage=usage))
    _bundle_arguments(new("bundle", _bundle, "an incident in one redacted file, for --replay"))
    _doctor_arguments(new("doctor", _doctor, "why does CUDA not work, or proof that it does"))
    _run_arguments(new("run", _run, "a command, with a look inside and a record of it"))


def _snapshot_arguments(snapshot: argparse.ArgumentParser) -> None:
    form = snapshot.add_mutually_exclusive_group()
    for name, what in (
        ("json", "typed JSON; null is unknown, `gaps` says why"),
        ("csv", "one line a GPU"),
        ("schema", "the JSON schema"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=what)


def _ps_arguments(ps: argparse.ArgumentParser) -> None:
    ps.add_argument("--json", action="store_true", help="typed JSON on stdout")
    ps.add_argument("--gpu", type=int, metavar="N", help="only holders of this GPU")
    ps.add_argument("--user", metavar="U", help="only this user's")
    ps.add_argument("--stray", action="store_true", help="only strays")


def _kill_arguments(kill: argparse.ArgumentParser) -> None:
    kill.add_argument("pid", nargs="+", metavar="PID[:START_TICKS]")
    kill.add_argument("--signal", metavar="TERM", help="this signal, without escalation")
    kill.add_argument("--grace", type=float, default=10.0, metavar="S", help="wait for SIGTERM")
    kill.add_argument("--yes", action="store_true", help="answer yes to every question")
    kill.add_argument("--job", action="store_true", help="children and ranks of the job as well")


def _diagnose_arguments(diagnose: argparse.ArgumentParser) -> None:
    diagnose.add_argument("file", nargs="?", metavar="FILE|-", help="the log; `-` is stdin")
    diagnose.add_argument("--pid", type=int, metavar="PID", help="the kept output of that run")
    diagnose.add_argument("--json", action="store_true", help="typed JSON on stdout")


def _fix_arguments(fix: argparse.ArgumentParser) -> None:
    fix.epilog = "After `--`: the command line of the run, where the cockpit cannot know it."
    fix.add_argument("flow", nargs="?", choices=_FLOWS, metavar="FLOW", help=", ".join(_FLOWS))
    fix.add_argument("--pid", metavar="PID[:START_TICKS]", help="the process it is about")
    fix.add_argument("--log", metavar="FILE", help="what the run printed")
    fix.add_argument("--plain", action="store_true", help="line by line, without the TUI")
    fix.add_argument("--dry-run", action="store_true", help="only show what would run")
    fix.add_argument("--report", metavar="FILE", help="with --plain: write a Markdown report")


def _bundle_arguments(bundle: argparse.ArgumentParser) -> None:
    bundle.add_argument("file", metavar="FILE", help="a new file; .gz packs it")
    bundle.add_argument("--log", metavar="FILE", help="the end of this log as well")
    bundle.add_argument("--seconds", type=float, default=5.0, metavar="S", help="of snapshots")
    bundle.add_argument("--show", action="store_true", help="print what is in a bundle")


def _doctor_arguments(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--json", action="store_true", help="typed JSON on stdout")
    whose = doctor.add_mutually_exclusive_group()
    whose.add_argument("--python", metavar="PATH", help="with this interpreter")
    whose.add_argument("--pid", type=int, metavar="PID", help="as this running job sees it")


def _run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument("--name", metavar="N", help="what to call the run")
    run.add_argument("--background", action="store_true", help="own session, output into its file")
    run.add_argument("--history", action="store_true", help="allocations with stacks (2 us each)")
    run.add_argument("--coredump", action="store_true", help="a GPU core dump at a CUDA exception")
    run.add_argument("--ptracer", action="store_true", help="py-spy may look in under Yama 1")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command")
