"""A user's own images as tasks: folders, tables, split files, shards and data sets of the hub."""

from tasso.data.readers.folder import find_all_images
from tasso.data.readers.load import check_places, load_own
from tasso.data.readers.split import few_shot, hold_back

__all__ = ["check_places", "few_shot", "find_all_images", "hold_back", "load_own"]
