"""Pieces of new code in the style of what is around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import libcst as cst

from cockpit.act.rewrites.source import Block, Change


def wrapping(block: Block, first: int, last: int, header: str) -> dict[cst.CSTNode, Change]:
    """Some of the block's statements (``last`` included) under ``with HEADER:`` or ``if HEADER:``.

    The comment lines above the first stay above the new line.
    """

    def change(updated: cst.CSTNode) -> cst.CSTNode:
        body = list(cast("Block", updated).body)
        inner: list[Any] = body[first : last + 1]
        outer = cast("cst.BaseCompoundStatement", cst.parse_statement(f"{header}:\n pass"))
        body[first : last + 1] = [
            outer.with_changes(
                leading_lines=inner[0].leading_lines,
                body=cst.IndentedBlock(
                    body=[inner[0].with_changes(leading_lines=()), *inner[1:]],
                    indent=block.indent if isinstance(block, cst.IndentedBlock) else None,
                ),
            )
        ]
        return updated.with_changes(body=body)

    return {block: change}


def inserting(block: Block, at: int, code: str) -> dict[cst.CSTNode, Change]:
    """One more statement in the block, before the one at the place ``at``."""

    def change(updated: cst.CSTNode) -> cst.CSTNode:
        body: list[Any] = list(cast("Block", updated).body)
        body.insert(at, cst.parse_statement(code))
        return updated.with_changes(body=body)

    return {block: change}


def with_keyword(call: cst.Call, name: str, code: str) -> cst.Call:
    """The call with ``name=code``: changed where it stands, else added as the last argument."""
    value = cst.parse_expression(code)
    for i, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return call.with_changes(args=_replaced(call.args, i, arg.with_changes(value=value)))
    new = cst.Arg(
        keyword=cst.Name(name),
        value=value,
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    return call.with_changes(args=[*_before_new(call), _placed(call, new)])


def with_argument(
    call: cst.Call, name: str, code: str, position: int | None
) -> tuple[cst.Call, bool]:
    """(the call with a literal argument set, whether it is a literal now).

    What is not a literal (``args.workers``) is the user's own setting and stays. ``position``: its
    place among positional arguments; None: it is keyword-only.
    """
    for i, arg in enumerate(call.args):
        named = arg.keyword is not None and arg.keyword.value == name
        if named or (arg.keyword is None and i == position):
            if not isinstance(arg.value, cst.Integer | cst.Name | cst.UnaryOperation):
                return call, False
            if isinstance(arg.value, cst.Name) and arg.value.value not in ("True", "False", "None"):
                return call, False
            new = arg.with_changes(value=cst.parse_expression(code))
            return call.with_changes(args=_replaced(call.args, i, new)), True
    return with_keyword(call, name, code), True


def _replaced(args: Sequence[cst.Arg], at: int, new: cst.Arg) -> list[cst.Arg]:
    return [*args[:at], new, *args[at + 1 :]]


def _separator(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """What stands between two arguments: a blank, or a line break as between those before."""
    for arg in call.args[:-1]:
        if isinstance(arg.comma, cst.Comma):
            space = arg.comma.whitespace_after
            return _uncommented(space)
    if len(call.args) == 1 and isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):
        return _uncommented(call.whitespace_before_args)  # one argument a line, with one so far
    return cst.SimpleWhitespace(" ")


def _before_new(call: cst.Call) -> list[cst.Arg]:
    """The arguments so far, the last one followed by a comma; its comment stays on its line."""
    if not call.args:
        return []
    last, separator, tail = call.args[-1], _separator(call), _tail(call)
    if isinstance(tail, cst.ParenthesizedWhitespace) and isinstance(
        separator, cst.ParenthesizedWhitespace
    ):
        separator = separator.with_changes(first_line=tail.first_line, empty_lines=tail.empty_lines)
    comma = cst.Comma(whitespace_after=separator)
    bare = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    return [*call.args[:-1], bare]


def _tail(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """What stands between the last argument (and its comma) and the bracket."""
    last = call.args[-1]
    comma = last.comma
    return comma.whitespace_after if isinstance(comma, cst.Comma) else last.whitespace_after_arg


def _placed(call: cst.Call, new: cst.Arg) -> cst.Arg:
    """The new last argument with the bracket where it was: on this line, or on the next."""
    if not call.args:
        return new
    tail, comma = _tail(call), call.args[-1].comma
    if isinstance(_separator(call), cst.ParenthesizedWhitespace):
        tail = _uncommented(tail)  # the comment went with the argument before
    if isinstance(comma, cst.Comma):
        return new.with_changes(comma=comma.with_changes(whitespace_after=tail))
    return new.with_changes(whitespace_after_arg=tail)


def _uncommented(
    space: cst.BaseParenthesizableWhitespace,
) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    plain = cst.TrailingWhitespace(newline=space.first_line.newline)
    return space.with_changes(first_line=plain, empty_lines=())
