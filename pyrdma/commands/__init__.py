"""The command line ``pyrdma``. `main` is the entry point; the other modules are the commands."""
