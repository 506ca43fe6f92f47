"""The command line: one module a command, imported only when it is called."""

INTERRUPTED = 130
"""Exit code of a command that a signal ended: a run that was interrupted is not a finished one."""
