"""How far probabilities of `tasso classify` change in bfloat16, and with the images resized by Pillow; and how long
float32 takes. On one core.

    python tools/classify_exactness.py runs/mine images [--after 0]
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

from tasso.data.images.files import find_images, read_image
from tasso.data.images.transforms import normalise
from tasso.data.task import Array
from tasso.decoding.views import centre_crop
from tasso.training.run import Run

BATCHES = (1, 16, 64)


def main() -> None:
    """Print a line for each way to compute, and one for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--after")
    args = parser.parse_args()
    torch.set_num_threads(1)
    run = Run(args.run, after=args.after, device="cpu")
    clip, predictor, candidates = run.clip, run.predictor, run.candidates()
    images = [read_image(file) for file in find_images(args.images)]

    def with_pillow(image: Array) -> Tensor:
        pixels = torch.from_numpy(centre_crop(clip.preprocess, image).copy()).permute(2, 0, 1)[None]
        return normalise(pixels.float() / 255, clip.preprocess)

    views = {"exact": [*map(predictor.prepare, images)], "Pillow": [*map(with_pillow, images)]}
    order = {(answer.class_name, answer.task): index for index, answer in enumerate(candidates.answers)}

    def probabilities(view: str, precision: torch.dtype) -> Tensor:
        clip.precision = precision
        found = torch.zeros(len(images), len(order), dtype=torch.float64)
        for row, predictions in zip(
            found, predictor.predict_prepared(views[view], candidates, len(order)), strict=True
        ):
            for each in predictions:
                row[order[each.class_name, each.task]] = each.probability
        return found

    expected = probabilities("exact", torch.float32)
    print(f"{run.stage}, {candidates}, {len(images)} images")
    for view, precision in (("exact", torch.bfloat16), ("Pillow", torch.float32), ("Pillow", torch.bfloat16)):
        found = probabilities(view, precision)
        labels = int((found.argmax(1) != expected.argmax(1)).sum())
        points = 100 * float((found - expected).abs().max())
        print(f"{view} {precision}: {labels} labels differ, probabilities by up to {points:.2f} points")
    for size in BATCHES:
        pixels = torch.cat(views["exact"][:size])
        for precision in (torch.float32, torch.bfloat16):
            clip.precision, took = precision, []
            for _ in range(10):
                began = time.perf_counter()
                run.inference.embed(pixels)
                took.append(time.perf_counter() - began)
            print(f"batch {size}, {precision}: {1000 * sorted(took)[5] / len(pixels):.1f} ms per image")


if __name__ == "__main__":
    main()
