"""The file that every child process of `pyrdma.children` starts with.

Python puts the folder of a script first on `sys.path`, and the working folder for ``-c`` and
``-m``. This script is in a folder that is as safe as the package itself. It imports nothing but the
built-in `sys` before it has replaced the whole path. So one way serves all versions of Python. A
text for ``-c`` would not do: from 3.13 on, Python imports linecache before it runs the text.
``PYTHONSAFEPATH`` exists from 3.11 on, and children of the child would inherit it.

The arguments are the module whose function ``main`` is called, and the entries of `sys.path`.
"""

import sys

module = sys.argv[1]
sys.path[:] = sys.argv[2:]
del sys.argv[1:]

import importlib  # noqa: E402 - from the new path

importlib.import_module(module).main()
