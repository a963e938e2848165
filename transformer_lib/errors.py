"""The error that a user can mend: one clear line, no traceback on the command line."""


class UserError(Exception):
    """What was given, what was expected, what to do. Commands print it and exit with code 2."""
