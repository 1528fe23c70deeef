"""Imports every domain's file, which registers it. The order here is the order of the domains."""

from importlib import import_module

for _name in ("aircraft", "textures", "land", "flowers", "food", "pets", "vehicles", "actions"):
    import_module(f".{_name}", __package__)
