"""What is exported loads in plain open_clip and gives the same embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from PIL import Image

import tasso
from tasso.cli import main
from tasso.clip import Clip, load_clip
from tasso.errors import RunError
from tasso.export import export_open_clip
from tasso.images.views import normalise, resize_and_centre
from tasso.tasks import atlas

TEXTS = ["a photo of a biplane.", "two dogs run through the grass"]


def same_embeddings(clip: Clip, folder: Path) -> None:
    """Plain open_clip's own model, transform and tokenizer against ours."""
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    picture = atlas.render("flowers", 3, 0)
    pixels = torch.from_numpy(picture.copy()).permute(2, 0, 1)[None]
    with torch.no_grad():
        ours = clip.encode_images(normalise(resize_and_centre(pixels, clip.preprocess), clip.preprocess))
        theirs = model.eval().encode_image(preprocess(Image.fromarray(picture))[None], normalize=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=2e-3)  # Pillow rounds resized pictures to bytes
        torch.testing.assert_close(clip.encode_texts(TEXTS), model.encode_text(tokenizer(TEXTS), normalize=True))


def test_nano_with_its_own_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["export", "--model", "nano", "--out", "exported"])
    monkeypatch.chdir("/")  # the vocabulary must be found from anywhere
    same_embeddings(load_clip("nano"), tmp_path / "exported")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["exported"]


def test_a_run_keeps_what_it_learned(quick: dict[str, Any], tmp_path: Path) -> None:
    run = tasso.learn(**quick)
    main(["export", "--run", str(quick["out"]), "--out", str(tmp_path / "exported")])
    same_embeddings(run.clip, tmp_path / "exported")
    start = load_clip(str(quick["model"]))
    assert not torch.equal(start.state("visual")["visual.proj"], run.clip.state("visual")["visual.proj"])


def test_activation_is_kept(tmp_path: Path, tiny_name: str) -> None:
    torch.manual_seed(0)
    weights = tmp_path / "weights.pt"
    torch.save(open_clip.create_model(f"{tiny_name}-quickgelu").state_dict(), weights)
    clip = load_clip(f"{tiny_name}-quickgelu", str(weights))
    same_embeddings(clip, export_open_clip(clip, tmp_path / "exported"))
    again = load_clip(f"local-dir:{tmp_path / 'exported'}")
    assert any(isinstance(m, open_clip.transformer.QuickGELU) for m in again.model.modules())


def test_full_folders_are_left_alone(tiny_clip: Clip, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="exists and is not empty"):
        export_open_clip(tiny_clip, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    for words in ([], ["--run", "x", "--model", "nano"]):
        with pytest.raises(SystemExit):
            main(["export", *words, "--out", str(tmp_path / "x")])
        assert "give either --run or --model" in capsys.readouterr().err
