"""Accuracy, metrics, image–text alignment and predictions."""
