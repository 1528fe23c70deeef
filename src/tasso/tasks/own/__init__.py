"""A user's own pictures as tasks: folders, tables, split files, shards and data sets of the hub."""

from tasso.tasks.own.division import few
from tasso.tasks.own.folder import pictures_below
from tasso.tasks.own.load import load_own

__all__ = ["few", "load_own", "pictures_below"]
