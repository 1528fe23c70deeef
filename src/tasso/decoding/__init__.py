"""From encoded images to pixels, in this process or in others. Needs no torch, so that a process starts quickly."""
