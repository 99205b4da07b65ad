"""``python -m pyrdma`` is the command ``pyrdma``."""

import os
import sys

# -m puts the working folder first, where other users may have put modules. The command needs none.
if not getattr(sys.flags, "safe_path", False):
    first = sys.path[0] or "."
    # pathlib may not be loaded yet, and must not come from there.
    if os.path.exists(first) and os.path.samefile(first, "."):  # noqa: PTH110, PTH121
        del sys.path[0]

from ._start import main

main()
