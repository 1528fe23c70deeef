"""Drawings that explain the methods."""
