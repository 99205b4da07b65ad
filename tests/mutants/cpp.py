"""The tokens of a C++ file as clang-format leaves it, the extents of operands, and statements.

It is no parser. A place that it takes wrongly gives a mutant that does not compile, which is left
out. The format decides what a parser would: binary operators have spaces on both sides, and the
brackets of templates have none before them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_BLANKED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\])+\''
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_TOKEN = re.compile(
    r"[A-Za-z_]\w*|\d[\w.']*|\"_*\"|'_*'|<=>|<<=|>>=|->|\+\+|--|&&|\|\||[<>=!+\-*/%&|^]=|<<"
    r"|(?<=\s)>>(?=\s)|::|\S"
)
_ENDS = {"(": ")", "[": "]", "{": "}"}
_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<=>", "<< >>", "+ -", "* / %")
LEVEL = {operator: level for level, each in enumerate(_LEVELS) for operator in each.split()}
"""How tightly each binary operator binds."""
_STOPS = {*",;?:=", "return", "co_return", "throw", "case", "else", "do"}
_STOPS |= {f"{operator}=" for operator in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")}
_HEADED = {"if", "while", "for", "switch", "catch"}
_TYPES = {"namespace", "class", "struct", "union", "enum"}


@dataclass(frozen=True)
class Token:
    text: str
    begin: int
    end: int
    spaced_before: bool
    spaced_after: bool

    @property
    def level(self) -> int | None:
        """How tightly it binds, if it is a binary operator."""
        return LEVEL.get(self.text) if self.spaced_before and self.spaced_after else None


@dataclass(frozen=True)
class Statement:
    """A simple statement, from its first token to its semicolon."""

    first: int
    last: int
    block: int
    """The brace in which it stands."""


def blanked(text: str) -> str:
    """Return text of the same length without comments, preprocessor lines and literals' content."""

    def blank(found: re.Match[str]) -> str:
        quote = found[0][-1]
        if quote in "\"'" and not found[0].lstrip().startswith(("#", "/")):
            return quote + "_" * (len(found[0]) - 2) + quote
        return re.sub(r"[^\n]", " ", found[0])

    return _BLANKED.sub(blank, text)


class Source:
    """A file in tokens. Places are indices of `tokens`."""

    def __init__(self, text: str) -> None:
        self.text = text
        clean = blanked(text)
        self.tokens = [
            Token(
                found[0],
                *found.span(),
                clean[found.start() - 1 : found.start()].isspace(),
                clean[found.end() : found.end() + 1].isspace(),
            )
            for found in _TOKEN.finditer(clean)
        ]
        self.match: dict[int, int] = {}
        opened: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.text in _ENDS:
                opened.append(at)
            elif token.text in _ENDS.values() and opened:
                self.match[at] = opened[-1]
                self.match[opened.pop()] = at

    def span(self, first: int, last: int) -> str:
        """Return the text of the tokens from `first` to `last`."""
        return self.text[self.tokens[first].begin : self.tokens[last].end]

    def outside(self, first: int, last: int) -> list[str]:
        """Return the tokens from `first` to `last` that stand in no brackets.

        A bracket of a template is none of the operators, and is left out.
        """
        found, i = [], first
        while i <= last:
            if self.tokens[i].text not in ("<", ">") or self.tokens[i].level is not None:
                found.append(self.tokens[i].text)
            i = max(i, self.match.get(i, i)) + 1
        return found

    def left(self, at: int) -> int:
        """Return the first token of the left operand of the operator at `at`."""
        level, i = LEVEL[self.tokens[at].text], at - 1
        while i >= 0:
            token = self.tokens[i]
            if token.text in _ENDS.values():
                i = self.match[i]
            elif token.text == ">" and not token.spaced_before:
                i = self._template(i, -1)
            elif self._ends(token) or (token.level is not None and token.level < level):
                break
            i -= 1
        return i + 1

    def right(self, at: int) -> int:
        """Return the last token of the right operand of the operator at `at`."""
        level, i = LEVEL[self.tokens[at].text], at + 1
        while i < len(self.tokens):
            token = self.tokens[i]
            if token.text in _ENDS:
                i = self.match[i]
            elif token.text == "<" and not token.spaced_before:
                i = self._template(i, 1)
            elif self._ends(token) or (token.level is not None and token.level <= level):
                break
            i += 1
        return i - 1

    def _ends(self, token: Token) -> bool:
        is_open = token.text in _ENDS or (token.text == "<" and not token.spaced_before)
        return token.text in _STOPS or token.text in _ENDS.values() or is_open

    def _template(self, at: int, step: int) -> int:
        """Return the other bracket of the template's arguments."""
        depth = 0
        for i in range(at, len(self.tokens) if step > 0 else -1, step):
            token = self.tokens[i]
            if token.text in "<>" and not token.spaced_before:
                depth += 1 if token.text == "<" else -1
                if depth == 0:
                    return i
        return at

    @cached_property
    def _blocks(self) -> tuple[set[int], list[tuple[int, str]]]:
        """Return braces of code, and where each function begins, with its name."""
        code: set[int] = set()
        functions: list[tuple[int, str]] = []
        open_braces: list[int] = []
        name = ""
        for at, token in enumerate(self.tokens):
            if token.text == "}" and open_braces:
                open_braces.pop()
            if token.text != "{":
                continue
            head = self._head(at)
            is_code = "(" in head or not _TYPES & set(head)
            if is_code and not any(brace in code for brace in open_braces):
                name = _named(head) or name
                functions.append((token.begin, name))
            if is_code:
                code.add(at)
            open_braces.append(at)
        return code, functions

    def _head(self, at: int) -> list[str]:
        """Return what stands before a brace since the statement before; ``(`` is a whole pair."""
        head: list[str] = []
        i = at - 1
        while i >= 0 and self.tokens[i].text not in (";", "{", "}"):
            if self.tokens[i].text in (")", "]"):
                i = self.match[i]
            elif self.tokens[i].text == ">" and not self.tokens[i].spaced_before:
                i = self._template(i, -1)
            head.insert(0, self.tokens[i].text)
            i -= 1
        return head

    def function(self, at: int) -> str:
        """Return the name of the function around a place, or an empty text."""
        begins = [begin for begin, _ in self._blocks[1]]
        found = bisect_right(begins, self.tokens[at].begin) - 1
        return self._blocks[1][found][1] if found >= 0 else ""

    @cached_property
    def headers(self) -> list[tuple[str, int, int]]:
        """The headers of `if`, `while` and `for`: the word and both parentheses."""
        return [
            (token.text, at + 1, self.match[at + 1])
            for at, token in enumerate(self.tokens[:-1])
            if token.text in ("if", "while", "for") and self.tokens[at + 1].text == "("
        ]

    @cached_property
    def statements(self) -> list[Statement]:
        """Each simple statement of the code that ends with a semicolon."""
        return [
            Statement(first, last, block)
            for block in sorted(self._blocks[0])
            for first, last, _ in self._parse(block)
            if last > first and self.tokens[last].text == ";"
        ]

    def last_whole(self, block: int) -> int:
        """Return the first token of the last statement of a block, its header included."""
        return max((whole for _, _, whole in self._parse(block)), default=block)

    def _parse(self, block: int) -> Iterator[tuple[int, int, int]]:
        """Yield first and last token of each simple statement, and the first of the whole."""
        i, end, whole, is_inner = block + 1, self.match[block], block, False
        while i < end:
            text = self.tokens[i].text
            if not is_inner and text != "else":
                whole = i
            if text in _HEADED:
                while self.tokens[i].text != "(":
                    i += 1
                i, is_inner = self.match[i] + 1, True
                continue
            if text in ("else", "do", "try"):
                i, is_inner = i + 1, True
                continue
            if text in ("case", "default"):
                while self.tokens[i].text != ":":
                    i += 1
                i, is_inner = i + 1, False
                continue
            first = i
            if text == "{":
                i = self.match[i]
            else:
                while i < end and self.tokens[i].text != ";":
                    i = self.match[i] + 1 if self.tokens[i].text in _ENDS else i + 1
            yield first, min(i, end - 1), whole
            i, is_inner = i + 1, False


def _named(head: list[str]) -> str:
    """Return the name of the function whose head this is, or an empty text."""
    name: list[str] = []
    for text in reversed(head[: head.index("(")] if "(" in head else []):
        if not re.match(r"\w|::|~", text) or (name and text[0].isalnum() and name[0][0].isalnum()):
            break
        name.insert(0, text)
    return "".join(name)
