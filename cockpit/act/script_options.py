"""Which options a training script declares: read from its source, or from its ``--help``. Pure.

The source is read as text, with ``ast``: argparse, click, typer, absl and the dataclasses that
HfArgumentParser takes. Nothing of it is run. ``--help`` would run all that stands at the top of the
script, so asking for it is an action of its own (help_options.py), to be confirmed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cockpit.act.command_line import Declared

_CALLS = frozenset(("add_argument", "option", "Option"))
_ABSL = re.compile(r"DEFINE_(integer|string|float|bool|boolean|enum)")
_FIELD_PARSERS = re.compile(
    r"\b(HfArgumentParser|TrlParser|tyro|simple_parsing|draccus|pyrallis)\b"
)
"""What makes options of a dataclass's fields; elsewhere a field is no option (GPTConfig)."""
_PARSERS = frozenset(
    ("argparse", "click", "typer", "absl", "jsonargparse", "configargparse", "docopt", "cyclopts")
)
_FRAMEWORKS = (
    ("vllm", ("vllm",)),
    ("nemo", ("nemo",)),
    ("transformers", ("transformers", "trl")),
    ("lightning", ("lightning", "pytorch_lightning", "lightning_fabric")),
    ("deepspeed", ("deepspeed",)),
    ("accelerate", ("accelerate",)),
    ("keras", ("keras", "tensorflow")),
    ("jax", ("flax", "jax")),
    ("torch", ("torch",)),
)


def declared_in_source(text: str, name: str = "script") -> tuple[Declared, ...]:
    """Empty for what is no Python of this interpreter's version."""
    tree = _parsed(text)
    if tree is None:
        return ()
    found: list[Declared] = []
    parses = _FIELD_PARSERS.search(text) is not None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += _of_call(node, name)
        elif isinstance(node, ast.ClassDef) and parses and _is_arguments(node):
            found += _of_fields(node, name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_typer(node):
            found += _of_parameters(node, name)
    return tuple(found)


def framework_of_source(text: str) -> str | None:
    """By its imports: the Trainer's where TrainingArguments are read from the command line."""
    names = set(imported(text))
    if names & {"transformers", "trl"} and not re.search(r"\b(HfArgumentParser|TrlParser)\b", text):
        names -= {"transformers", "trl"}
    return next((one for one, modules in _FRAMEWORKS if names & set(modules)), None)


def parses_options(text: str) -> bool:
    """By its imports: it has a parser, which answers ``--help`` before the training begins."""
    names = set(imported(text))
    return bool(names & _PARSERS) or _FIELD_PARSERS.search(text) is not None


def imported(text: str) -> tuple[str, ...]:
    """First parts of the modules that it imports; relative ones begin with a dot."""
    tree = _parsed(text)
    found: dict[str, None] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            found.update((alias.name.partition(".")[0], None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            head = (node.module or "").partition(".")[0]
            found["." + head if node.level else head] = None
    return tuple(found)


# -- --help ------------------------------------------------------------------------------------

_HELP_LINE = re.compile(r"^ {1,8}(-{1,2}[A-Za-z][^ ,=\[]*.*)$")
_HELP_NAME = re.compile(r"(-{1,2}[A-Za-z][\w.-]*)(?:[ =](\{[^}]*\}|\[?[A-Z<][^ ,]*))?")
_HELP_DEFAULT = re.compile(r"[(\[]default:? ?=?['\"]?([^)'\"\];]+)")


def declared_in_help(text: str) -> tuple[Declared, ...]:
    """Options of a ``--help`` by argparse, click or typer (rich boxes included)."""
    found: list[Declared] = []
    lines = [line.strip("│┃|").rstrip() for line in text.splitlines()]
    for at, line in enumerate(lines):
        match = _HELP_LINE.match(line if line.startswith(" ") else f" {line}")
        if match is None:
            continue
        head, _, about = match[1].partition("  ")
        if len(lines) > at + 1 and not _HELP_LINE.match(lines[at + 1]):
            about += " " + lines[at + 1].strip()
        found += _of_help(head, about, match[1])
    return tuple(found)


def _of_help(head: str, about: str, whole: str) -> list[Declared]:
    pairs = _HELP_NAME.findall(head)
    if not pairs:
        return []
    names = tuple(dict.fromkeys(name for name, _ in pairs))
    values = [value for _, value in pairs if value]
    typer = re.search(r" {2,}(INTEGER|TEXT|FLOAT|PATH|NUMBER)\b", whole)
    choices = values[0][1:-1].split(",") if values and values[0].startswith("{") else []
    default = _HELP_DEFAULT.search(about)
    return [
        Declared(
            names,
            bool(values) or typer is not None,
            default[1].strip() if default else None,
            tuple(choices),
            "--help",
        )
    ]


# -- source --------------------------------------------------------------------------------------


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _of_call(node: ast.Call, name: str) -> Iterator[Declared]:
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if absl := _ABSL.fullmatch(called):
        yield from _of_absl(node, absl[1], name)
        return
    if called not in _CALLS:
        return
    words = [one for arg in node.args if isinstance(one := _constant(arg), str)]
    names = [half for word in words for half in word.split("/") if half.startswith("-")]
    if not names:
        return
    keywords = {word.arg: word.value for word in node.keywords if word.arg}
    yield Declared(
        tuple(names),
        not _is_switch(keywords, words),
        _text(keywords.get("default")),
        _choices(keywords.get("choices") or keywords.get("type")),
        f"{name}:{node.lineno}",
    )


def _is_switch(keywords: dict[str, ast.expr], words: list[str]) -> bool:
    action = keywords.get("action")
    named = _constant(action) if action is not None else ""
    if isinstance(named, str) and named.startswith(("store_true", "store_false", "count")):
        return True
    boolean = isinstance(action, ast.Attribute) and action.attr == "BooleanOptionalAction"
    click = _constant(keywords.get("is_flag")) is True or any("/-" in word for word in words)
    return boolean or click


def _of_absl(node: ast.Call, kind: str, name: str) -> Iterator[Declared]:
    """``flags.DEFINE_integer("batch_size", 32, "…")``; absl takes one dash or two."""
    option = _constant(node.args[0]) if node.args else None
    if isinstance(option, str):
        default = _text(node.args[1]) if len(node.args) > 1 else None
        switch = kind.startswith("bool")
        yield Declared((f"--{option}",), not switch, default, (), f"{name}:{node.lineno}")


def _is_arguments(node: ast.ClassDef) -> bool:
    """A dataclass that is called …Args, …Arguments, …Config or the like."""
    decorators = {_last_name(one) for one in node.decorator_list}
    return (
        "dataclass" in decorators and re.search(r"(Arg|Config|Param|Option)", node.name) is not None
    )


def _of_fields(node: ast.ClassDef, name: str) -> Iterator[Declared]:
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        default = field.value
        if isinstance(default, ast.Call):
            keywords = {word.arg: word.value for word in default.keywords}
            default = keywords.get("default")
        # HfArgumentParser takes `--flag` and `--flag True` for a bool: it may stand bare.
        switch = ast.unparse(field.annotation).startswith(("bool", "Optional[bool", "bool |"))
        names = (f"--{field.target.id}",)
        yield Declared(names, not switch, _text(default), (), f"{name}:{field.lineno}")


def _is_typer(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {_last_name(one) for one in node.decorator_list}
    return bool(names & {"command"}) and not any(
        _last_name(one) == "option" for one in node.decorator_list
    )


def _of_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Declared]:
    """typer: a parameter with a plain default is an option of that name, with dashes."""
    arguments = node.args.args
    defaults = [None] * (len(arguments) - len(node.args.defaults)) + list(node.args.defaults)
    pairs = [*zip(arguments, defaults, strict=True)]
    pairs += [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
    for argument, default in pairs:
        if default is None or isinstance(default, ast.Call):
            continue
        option = f"--{argument.arg.replace('_', '-')}"
        value = _constant(default)
        yield Declared(
            (option,), not isinstance(value, bool), _text(default), (), f"{name}:{argument.lineno}"
        )


def _last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _text(node: ast.expr | None) -> str | None:
    value = _constant(node)
    return None if value is None else str(value)


def _choices(node: ast.expr | None) -> tuple[str, ...]:
    if isinstance(node, ast.Call) and _last_name(node) == "Choice" and node.args:
        node = node.args[0]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return tuple(text for one in node.elts if (text := _text(one)) is not None)
    return ()
