"""Synthetic image–text pairs: made by a diffusion model, or by something that stands in for one."""

from tasso.methods.synthetic.catalogue import GENERATORS, STAND_INS, build_generator
from tasso.methods.synthetic.generator import Generator, Pairs, Request

__all__ = ["GENERATORS", "STAND_INS", "Generator", "Pairs", "Request", "build_generator"]
