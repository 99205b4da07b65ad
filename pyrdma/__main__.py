"""``python -m pyrdma`` is the command ``pyrdma``."""

from .commands.main import main

main()
