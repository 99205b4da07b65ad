"""The site: the Markdown pages of the tree, the docstrings, the command line. Built by Sphinx.

`sh tests/run.sh docs` builds it into build/site. The source folder is the tree itself, so links
between its pages are the same here and in the repository.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import pyrdma
from pyrdma.commands import main

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ROOT / "build" / "commands.md"
log = logging.getLogger(__name__)

project = "pyrdma"
author = "pyrdma developers"
copyright = "pyrdma developers"  # noqa: A001  Sphinx's name for it
version = release = pyrdma.__version__

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "native/README.md",
    "native/**/README.md",
    "native/fabric/CONFORMANCE.md",
    "native/fabric/sim/NETWORK.md",
    "native/fabric/sim/NIC.md",
    "experiments/nic/README.md",
    "playbooks/README.md",
    "tests/**/README.md",
]
exclude_patterns = [".*", "build", "results", "**/site-packages"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"pyrdma {release}"
html_extra_path = ["redirect"]
html_copy_source = False
html_show_sourcelink = False

# Links to headings, such as page.md#a-heading, as GitHub names them.
myst_heading_anchors = 4
# A name between single backquotes in a docstring becomes a link where it is a public name.
default_role = "py:obj"
highlight_language = "none"
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints_format = "short"


def write_commands(app: Sphinx) -> None:
    """Let Typer write the reference of the command line, which docs/commands.md includes."""
    del app
    words = (sys.executable, "-m", "typer", main.__name__, "utils", "docs", "--name", "pyrdma")
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    # Typer cuts the sentences of its list of commands; each command has a section below it.
    text, lists = re.subn(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", said)
    assert lists == 1, "Typer writes its list of commands in another form"
    # A word such as <id> is text, and not an HTML tag. In code it stays as it is.
    text = re.sub(r"`[^`]*`|<", lambda found: found[0] if len(found[0]) > 1 else "&lt;", text)
    COMMANDS.parent.mkdir(exist_ok=True)
    COMMANDS.write_text(text, encoding="utf-8")


def check_public_names(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of a public name that no page describes."""
    del app
    domain = env.get_domain("py")
    assert isinstance(domain, PythonDomain)
    for name in pyrdma.__all__:
        found = getattr(pyrdma, name)
        if isinstance(found, ModuleType):
            wanted = [f"{found.__name__}.{member}" for member in found.__all__]
        elif callable(found):
            wanted = [f"pyrdma.{name}", f"{found.__module__}.{name}"]  # one is enough
        else:
            continue
        missing = [each for each in wanted if each not in domain.objects]
        if isinstance(found, ModuleType) or len(missing) == len(wanted):
            for each in missing[: None if isinstance(found, ModuleType) else 1]:
                log.warning("%s is public, and no page of docs/api describes it", each)


def setup(app: Sphinx) -> None:
    """Connect the steps above."""
    app.connect("builder-inited", write_commands)
    app.connect("env-check-consistency", check_public_names)
