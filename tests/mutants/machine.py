"""Makes mutants of the protocol files of a system by rules, beside the hand-written list.

The name of a mutant stays when lines move: it has the file, the function and the change.
`harmless.toml` of a system gives the names of those that a person has found harmless, and why.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutants.cpp import Source
from tests.mutants.schemata import ListError, Mutant, read_toml

ROOT = Path(__file__).resolve().parents[2]

# These folders of a system are no protocol, and neither are files of bugs, steps and programs. The
# tests of bad arguments judge options.
_OTHER_FOLDERS = {"fuzz", "bindings", "workloads", "baselines"}
_OTHER_FILES = re.compile(r"(bugs|scopes|system|options|\w+_test)\.(h|cc)")

_FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_NOISE = re.compile(r"\bBug::|\bbugs_?\b|\b(reached|charge\w*|trace\w*)\(|\bthrow\b")
"""Deliberate bugs, marks and costs of the simulator."""
_WAIT = re.compile(r"(wait|sleep|poll_until|run_until|await|yield|join|drain|settle)")
_LOCK = re.compile(r"(?:const )?[\w:]*[Ll]ock(?:_guard)?(?:<[^;(]*>)? (?P<name>\w+)\(")
_NEEDS_NO_LOCK = re.compile(r"return( [\w:]*[a-zA-Z0-9])?;")  # a constant or a local variable
_CALL = re.compile(r"[\w:.<>()\[\]*-]*?(?P<called>\w+)(?:<[^()]*>)?\(\);")
_UPDATE = re.compile(r"[\w:.()\[\]*>-]+ (?:[-+|&^]|<<|>>)?= .*;|(?:\+\+|--)\S+;|\S+(?:\+\+|--);")


class Places:
    """The changes of one file."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._source = Source(text)

    def all(self) -> Iterator[Mutant]:
        """Yield a mutant, not numbered and without scenarios, for each change."""
        yield from self._operators()
        yield from self._conditions()
        yield from self._returns()
        yield from self._statements()

    def _made(self, operator: str, first: int, last: int, new: str, form: str = "") -> list[Mutant]:
        source = self._source
        find = source.span(first, last)
        shown = find.split(";")[0] if form else find
        if _NOISE.search(shown):
            return []
        name = f"{self._file} {source.function(first)}: {operator}: {shown}"
        name = re.sub(r"\s+", " ", f"{name} -> {new}" if new else name)
        at = source.tokens[first].begin
        return [Mutant(0, name, self._file, find, new, operator, (), at=at, form=form)]

    def _operators(self) -> Iterator[Mutant]:
        source = self._source
        loops = [(begin, end) for word, begin, end in source.headers if word == "for"]
        for at, token in enumerate(source.tokens):
            if token.level is None or any(begin < at < end for begin, end in loops):
                continue
            first, last = source.left(at), source.right(at)
            left, right = source.span(first, at - 1), source.span(at + 1, last)
            if token.text in _FLIPPED:
                flipped = f"{left} {_FLIPPED[token.text]} {right}"
                yield from self._made("comparison flipped", first, last, flipped)
            elif token.text in ("&&", "||"):
                yield from self._made("check left out", first, last, left)
                if token.text not in source.outside(first, at - 1):
                    yield from self._made("check left out", first, last, right)

    def _conditions(self) -> Iterator[Mutant]:
        for word, begin, end in self._source.headers:
            outside = self._source.outside(begin + 1, end - 1)
            if word == "for" or {";", "="} & set(outside) or outside == ["true"]:
                continue
            if word == "if":
                yield from self._made("check returned true", begin + 1, end - 1, "true")
            operator = "check returned false" if word == "if" else "wait dropped"
            yield from self._made(operator, begin + 1, end - 1, "false")

    def _returns(self) -> Iterator[Mutant]:
        source = self._source
        for statement in source.statements:
            first, last = statement.first + 1, statement.last - 1
            if source.tokens[statement.first].text != "return" or last < first:
                continue
            outside = source.outside(first, last)
            judges = {"&&", "||", *_FLIPPED} & set(outside) or outside[0] == "!"
            for value, other in (("true", "false"), ("false", "true")):
                if outside == [other] or (judges and "?" not in outside):
                    yield from self._made(f"check returned {value}", first, last, value)

    def _statements(self) -> Iterator[Mutant]:
        source = self._source
        for statement in source.statements:
            first, last = statement.first, statement.last
            text = re.sub(r"\s+", " ", source.span(first, last))
            bare = _without_brackets(text)
            if lock := _LOCK.match(text):
                end = source.match[statement.block]
                if not re.search(rf"\b{lock['name']}\b", source.span(last + 1, end)):
                    final = source.last_whole(statement.block)
                    unguarded = source.span(final, end - 1)
                    end = max(last, final - 1)
                    yield from self._made("lock removed", first, end, "", "removed")
                    if end > last and not _NEEDS_NO_LOCK.fullmatch(unguarded):
                        yield from self._made("lock narrowed", first, end, "", "narrowed")
            elif call := _CALL.fullmatch(bare):
                waits = _WAIT.match(call["called"])
                operator = "wait dropped" if waits else "call removed"
                yield from self._made(operator, first, last, "")
            elif _UPDATE.fullmatch(bare):
                yield from self._made("update removed", first, last, "")


def _without_brackets(text: str) -> str:
    """Return a statement without what stands in round and square brackets."""
    depth, kept = 0, []
    for letter in text:
        depth -= letter in ")]"
        if depth == 0:
            kept.append(letter)
        depth += letter in "(["
    return "".join(kept)


def files(system: str) -> list[str]:
    """Return the protocol files of a system."""
    folder = ROOT / "native" / "systems" / system
    return [
        str(path.relative_to(ROOT))
        for path in sorted([*folder.rglob("*.h"), *folder.rglob("*.cc")])
        if not _OTHER_FOLDERS & set(path.parts) and not _OTHER_FILES.fullmatch(path.name)
    ]


def generate(system: str) -> list[Mutant]:
    """Return every mutant of a system; those that `harmless.toml` names are equivalent."""
    seen: Counter[str] = Counter()
    reasons = harmless(system)
    mutants: list[Mutant] = []
    for file in files(system):
        for mutant in Places(file, (ROOT / file).read_text(encoding="utf-8")).all():
            seen[mutant.name] += 1
            nth = seen[mutant.name]
            name = mutant.name if nth == 1 else f"{mutant.name} ({nth})"
            why = reasons.pop(name, "")
            mutants.append(
                dataclasses.replace(mutant, name=name, number=len(mutants) + 1, equivalent=why)
            )
    if reasons:
        raise ListError(f"harmless.toml of {system}: no mutant {next(iter(reasons))!r}; name one")
    return mutants


def harmless(system: str) -> dict[str, str]:
    """Return why each mutant of a system that no run needs to find is harmless, by name."""
    path = ROOT / "tests" / "systems" / system / "harmless.toml"
    if not path.exists():
        return {}
    return {entry["name"]: entry["because"] for entry in read_toml(path)["harmless"]}


def shuffled(mutants: Sequence[Mutant], seed: int) -> list[Mutant]:
    """Return mutants in an order that a seed decides, in which the operators take turns."""
    order = random.Random(seed).sample(mutants, len(mutants))
    turns: Counter[str] = Counter()
    keyed = []
    for mutant in order:
        turns[mutant.breaks] += 1
        keyed.append((turns[mutant.breaks], mutant))
    return [mutant for _, mutant in sorted(keyed, key=lambda pair: pair[0])]
