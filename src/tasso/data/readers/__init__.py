"""A user's own images as tasks: folders, tables, split files, shards and data sets of the hub."""

from tasso.data.readers.folder import find_all_images
from tasso.data.readers.load import check_places, load_own

__all__ = ["check_places", "find_all_images", "load_own"]
