"""The tasks: one folder for each, declared by one `Task` record (tasks/base.py). Importing this loads no torch."""

DEFAULT = "navigation"
"""What a command runs that can do without the name of a task."""
