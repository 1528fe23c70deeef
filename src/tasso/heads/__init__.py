"""Heads: how an image is compared with learned classes beyond their texts, from sums of features, in closed form."""

from tasso.heads.base import ClassKey, Head, class_key
from tasso.heads.collect import Collected, collect
from tasso.heads.inference import HeadInference
from tasso.heads.kinds import HEADS, build_head

__all__ = ["HEADS", "ClassKey", "Collected", "Head", "HeadInference", "build_head", "class_key", "collect"]
