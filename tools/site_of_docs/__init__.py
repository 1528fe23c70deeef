"""How mkdocs makes the site of docs/."""
