"""The commands that tests start: those of this process, and those that scripts name."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

STARTED: set[str] = set()
"""Every program that this process has started, by its name or path."""

_ELSEWHERE = {"guest.sh", "init", "fresh.sh"}
"""Scripts that run in a guest with its busybox, or that the tests do not use."""

_WRAPPERS = {"chrt", "env", "nice", "setarch", "setpriv", "sudo", "timeout", "xargs"}
"""Commands that run the command among their arguments."""

_BUILTIN = {
    "cd",
    "exit",
    "export",
    "kill",
    "read",
    "return",
    "set",
    "shift",
    "trap",
    "unset",
    "wait",
}
"""Words of the shell itself; neither they nor their arguments are programs."""


def record() -> None:
    """Record from now on the programs that this process starts."""

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen":
            program = arguments[0]
            if isinstance(program, (str, bytes, os.PathLike)):
                STARTED.add(os.fsdecode(program))

    sys.addaudithook(note)


def words_of_scripts(root: Path) -> set[str]:
    """Return the words of the tree's shell scripts that may be commands.

    These are the names of commands, and the arguments of functions and of programs that run
    another.
    """
    parser = Parser(Language(tree_sitter_bash.language()))
    scripts = [*root.glob("tests/**/*.sh"), *root.glob("experiments/*.sh"), root / ".ci/run"]
    words: set[str] = set()
    for script in scripts:
        if script.name not in _ELSEWHERE:
            for command in _commands(parser.parse(script.read_bytes()).root_node):
                words |= _words(command)
    return words


def _commands(node: Node) -> Iterator[Node]:
    if node.type == "command":
        yield node
    for child in node.children:
        yield from _commands(child)


def _words(command: Node) -> set[str]:
    """Return the bare words of a command that may be names of commands."""
    words = [
        child.text.decode()
        for child in command.children
        if child.type in ("command_name", "word") and child.text is not None
    ]
    name = words[0] if words else ""
    if name in _BUILTIN:
        return set()
    runs_another = name in _WRAPPERS or shutil.which(name) is None
    return set(words) if runs_another else {name}
