"""How mkdocs builds the site from docs/."""
