"""Labels that have changed. Needs no torch."""

from __future__ import annotations

# Labels of rows as stored results have them from when towers were called encoders, and as they are now.
RENAMED = {
    label.replace("towers", "encoders"): label
    for label in (
        "fine-tuning (both towers)", "fine-tuning, both towers", "fine-tuning of both towers",
        "fine-tuning of both towers, anchors", "SnD on both towers", "SnD on both towers, anchors",
    )
} | {"TASSO, no L_sub gradient to encoder": "TASSO, no L_sub gradient to image tower"}  # fmt: skip
