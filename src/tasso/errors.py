"""Errors a user can act on. The command line prints their message and nothing else."""


class TassoError(Exception):
    """Something the user gave cannot work; the message names it and says what to do."""


class ConfigError(TassoError):
    """A configuration key is unknown, ill-typed or out of range."""


class DataError(TassoError):
    """A file, an annotation entry or an image is missing or malformed."""


class ModelError(TassoError):
    """A model cannot be built or its weights cannot be loaded."""


class RunError(TassoError):
    """A run folder cannot be used as asked."""


class BusyError(RunError):
    """Another process is working in the run folder; later it may be free."""
