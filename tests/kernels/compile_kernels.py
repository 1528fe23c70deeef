"""Compile all kernels for a GPU that is not there: `python compile_kernels.py CAPABILITY …`, 86 for 8.6.

Prints one line per launch of a forward and a backward pass: capability, kernel, bytes of shared memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from tasso.data.images.transforms import FILTER_WIDTH
from tasso.kernels import norm, rounding
from tasso.kernels.attention import HEAD_WIDTHS, attention
from tasso.kernels.crops import resize_weights
from tasso.kernels.gelu import gelu
from tasso.kernels.norm import add_norm
from tasso.kernels.unit import unit, unit_backward
from tasso.models.fp8 import FP8, TINY

BFLOAT16 = torch.bfloat16
NAMES = {torch.float64: "fp64", torch.float32: "fp32", BFLOAT16: "bf16", torch.float16: "fp16", FP8: "fp8e4nv"}
LENGTH = 197  # tokens of ViT-B/16
ALIGNED = [["tt.divisibility", 16]]  # as all tensors that PyTorch allocates


def compile_for(capability: int, kernel: Any, *args: Any, grid: object, warmup: bool, **options: Any) -> None:
    """In the place of a launch."""
    given = dict(zip(kernel.arg_names, args, strict=False))
    given |= {name: options.pop(name) for name in kernel.arg_names if name in options}
    signature, constants, attributes = {}, {}, {}
    for parameter in kernel.params:
        value = given[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[parameter.name] = f"*{NAMES[value.dtype]}"
            attributes[(parameter.num,)] = ALIGNED
        else:
            signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
    source = ASTSource(kernel, signature, constants, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    print(capability, kernel.__name__, made.metadata.shared)


def launch_all(capability: int) -> None:
    """Each kernel, with the sizes for which it takes the most memory and registers, and those of ViT-B/16."""
    for head_width in HEAD_WIDTHS:
        bias = torch.empty(6 * head_width, requires_grad=True)
        q, kv = (
            torch.empty(1, *shape, dtype=BFLOAT16, requires_grad=True)
            for shape in ((1, 2 * head_width), (LENGTH, 4 * head_width))
        )
        attention(q, kv, bias, 2).sum().backward()
        for length, causal in ((LENGTH, False), (64, True)) if head_width == max(HEAD_WIDTHS) else ((64, True),):
            packed = torch.empty(1, length, 6 * head_width, dtype=BFLOAT16, requires_grad=True)
            attention(packed, None, bias, 2, causal).sum().backward()
    for width in (768, norm.WIDEST):
        bias, weight, shift, wide = (torch.empty(n, requires_grad=True) for n in (width, width, width, 4 * width))
        update = torch.empty(9, width, dtype=BFLOAT16, requires_grad=True)
        for dtype in (BFLOAT16, torch.float32):
            x = torch.empty(9, width, dtype=dtype, requires_grad=True)
            for added in ((None, None), (update, None), (update, bias)):
                total, normed = add_norm(x, *added, weight, shift, 1e-5)
                (total.sum().float() + normed.sum()).backward()
        hidden = torch.empty(9, 4 * width, dtype=BFLOAT16, requires_grad=True)
        for quick in (False, True):
            gelu(hidden, wide, quick).sum().backward()
        if capability >= 89:  # older ones have no fp8
            rounding.rounded(hidden.detach(), FP8, TINY)
    rows = torch.empty(9, 512)
    unit_backward(rows, *unit(rows, 1e-12), 1e-12)
    for reach in FILTER_WIDTH.values():
        resize_weights(torch.empty(4, 9, dtype=torch.float64), 224, 256, reach)


@contextlib.contextmanager
def no_device(tensor: Tensor) -> Iterator[None]:
    yield


if __name__ == "__main__":
    torch.cuda.device_of = no_device  # type: ignore[assignment,misc]
    for wanted in map(int, sys.argv[1:]):
        JITFunction.run = lambda self, *args, wanted=wanted, **options: compile_for(wanted, self, *args, **options)
        launch_all(wanted)
