"""A source file as a tree that remembers every blank: where a line is, what is around it.

The rewrites ask here and never look at text; what they do not replace stays as it was, to the byte.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

Block = cst.IndentedBlock | cst.Module
Loop = cst.For | cst.While
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Node = TypeVar("Node", bound=cst.CSTNode)
Change = Callable[[cst.CSTNode], cst.CSTNode]

_DEEPEST = 90
"""Brackets in brackets: some thousands overflow the stack of libcst; CPython takes 199."""
_SCOPES = (cst.FunctionDef, cst.ClassDef, cst.Lambda)


class Source:
    """One parsed file. Nodes are compared by identity."""

    def __init__(self, wrapper: MetadataWrapper) -> None:
        self.module = wrapper.module
        found = wrapper.resolve_many([PositionProvider, ParentNodeProvider])
        self._ranges = cast("Mapping[cst.CSTNode, CodeRange]", found[PositionProvider])
        self._parents = cast("Mapping[cst.CSTNode, cst.CSTNode]", found[ParentNodeProvider])
        # ``node.children`` visits the node with a recorder: 20 times slower than a table
        self._children: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        for child, parent in self._parents.items():
            self._children.setdefault(parent, []).append(child)

    @classmethod
    def parse(cls, text: str) -> Source | None:
        """None: not Python (2 600 lines take 1.4 s), or nested too deep for the parser."""
        if _depth(text) > _DEEPEST or _is_too_deep(text):
            return None
        try:
            module = cst.parse_module(text)
            if module.code != text:
                return None
            return cls(MetadataWrapper(module))
        except (cst.ParserSyntaxError, RecursionError, UnicodeError):
            return None

    # ── where

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """None for the module itself."""
        return self._parents.get(node)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Its parents, innermost first."""
        up = self.parent(node)
        while up is not None:
            yield up
            up = self.parent(up)

    def line(self, node: cst.CSTNode) -> int:
        """Where it starts, from 1."""
        return self._ranges[node].start.line

    def covers(self, node: cst.CSTNode, line: int) -> bool:
        """The line is one of those that it stands on."""
        at = self._ranges[node]
        return at.start.line <= line <= at.end.line

    def statement_at(self, line: int) -> Statement | None:
        """The innermost statement that stands in a block and covers the line."""
        best: Statement | None = None
        for node in self.walk(self.module):
            if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                # an ``elif`` is a compound statement too, but has no place in a block
                in_block = isinstance(self.parent(node), Block)
                if in_block and self.covers(node, line):
                    best = node
        return best

    def block_of(self, statement: cst.CSTNode) -> tuple[Block, int] | None:
        """The block that it stands in, and its place there; None for ``if x: y`` on one line."""
        block = self.parent(statement)
        if not isinstance(block, Block):
            return None
        return block, next(i for i, one in enumerate(block.body) if one is statement)

    def statement_of(self, node: cst.CSTNode) -> Statement | None:
        """The statement in a block that holds the node."""
        for one in (node, *self.above(node)):
            if isinstance(self.parent(one), Block):
                return cast("Statement", one)
        return None

    def scope_of(self, node: cst.CSTNode) -> cst.FunctionDef | cst.Module:
        """The function whose names it sees first; else the module."""
        for one in self.above(node):
            if isinstance(one, cst.FunctionDef):
                return one
        return self.module

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The class around it."""
        return next((one for one in self.above(node) if isinstance(one, cst.ClassDef)), None)

    def loops_around(self, node: cst.CSTNode) -> Iterator[Loop]:
        """The loops of the same function around a node (itself included), innermost first."""
        for one in (node, *self.above(node)):
            if isinstance(one, cst.For | cst.While):
                yield one
            if isinstance(one, _SCOPES) and one is not node:
                return

    # ── what

    def walk(self, node: cst.CSTNode, *, into_scopes: bool = True) -> Iterator[cst.CSTNode]:
        """All nodes below and itself, in the order of the text."""
        yield node
        for child in self._children.get(node, ()):
            if into_scopes or not isinstance(child, _SCOPES):
                yield from self.walk(child, into_scopes=into_scopes)

    def every(
        self, kind: type[Node], below: cst.CSTNode | None = None, *, into_scopes: bool = True
    ) -> list[Node]:
        """All of one class below a node (the module)."""
        start = self.module if below is None else below
        return [n for n in self.walk(start, into_scopes=into_scopes) if isinstance(n, kind)]

    def code(self, node: cst.CSTNode) -> str:
        """Its text without comments and blank lines around it."""
        return self.module.code_for_node(node).strip()

    def mentions(self, *words: str) -> bool:
        """One of the words stands in the code (comments left out)."""
        return not self._words.isdisjoint(words)

    @cached_property
    def _words(self) -> frozenset[str]:
        found = {n.value for n in self.walk(self.module) if isinstance(n, cst.Name)}
        strings = {n.value.strip("\"'") for n in self.every(cst.SimpleString)}
        own = {n.name.value for n in self.every(cst.ClassDef)}  # class Trainer: not the library's
        return frozenset((found | strings) - own)

    def uses(self, text: str, below: cst.CSTNode | None = None) -> list[cst.CSTNode]:
        """Places where the name (``total`` or ``self.total``) is read or written."""
        kind = cst.Attribute if "." in text else cst.Name
        return [
            node
            for node in self.every(kind, below)
            if self.code(node) == text and not self._is_label(node)
        ]

    def _is_label(self, node: cst.CSTNode) -> bool:
        """The ``x`` of ``a.x`` or of ``f(x=1)``: no variable."""
        up = self.parent(node)
        if isinstance(up, cst.Attribute):
            return up.attr is node
        return isinstance(up, cst.Arg | cst.Param) and getattr(up, "keyword", None) is node

    def values_of(self, name: str, below: cst.CSTNode | None = None) -> list[cst.BaseExpression]:
        """All that is assigned to a name with ``=``."""
        return [
            one.value
            for one in self.every(cst.Assign, below)
            if any(self.code(target.target) == name for target in one.targets)
        ]

    # ── change

    def changed(self, changes: Mapping[cst.CSTNode, Change]) -> cst.Module:
        """The tree with some nodes replaced; each gets its node with inner changes already made."""
        return self.module.visit(_Swap(changes))


def merged(*all_changes: Mapping[cst.CSTNode, Change]) -> dict[cst.CSTNode, Change]:
    """Changes of several kinds as one; of the same node they are made in this order."""
    found: dict[cst.CSTNode, Change] = {}
    for changes in all_changes:
        for node, change in changes.items():
            found[node] = _then(found[node], change) if node in found else change
    return found


def _then(first: Change, second: Change) -> Change:
    return lambda node: second(first(node))


class _Swap(cst.CSTTransformer):
    def __init__(self, changes: Mapping[cst.CSTNode, Change]) -> None:
        super().__init__()
        self._changes = changes

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        change = self._changes.get(original_node)
        return updated_node if change is None else change(updated_node)


def _is_too_deep(text: str) -> bool:
    """CPython gives up on it: 50 000 times ``not`` or ``elif`` would crash libcst's parser."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (RecursionError, MemoryError):
        return True
    except (SyntaxError, ValueError):
        return False  # perhaps newer than this Python: libcst knows more
    return False


def _depth(text: str) -> int:
    """Deepest nesting of brackets, those in strings and comments counted too."""
    deepest = depth = 0
    for mark in text:
        if mark in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in ")]}":
            depth = max(0, depth - 1)
    return deepest
