"""Arguments that no command accepts."""

from __future__ import annotations

from bad_inputs.case import Bad
from bad_inputs.world import RUN


def run(name: str, what: str, says: str, *more: str) -> Bad:
    return Bad(f"arguments/{name}", what, (*RUN, *more), says, needs=("model", "data"))


def alone(name: str, what: str, says: str, *args: str) -> Bad:
    return Bad(f"arguments/{name}", what, args, says)


CASES = [
    alone("command", "a command that there is not", r"no command .fly.", "fly"),
    alone("command-option", "an option in the place of the command", r"no command '--run'", "--run", "x"),
    alone("command-empty", "an empty word as command", r"no command ''", ""),
    run("option", "an option that there is not", r"--stpes", "--stpes", "3"),
    run("method-option", "an option that the method has not", r"method\.rnk", "--method.rnk", "3"),
    run("other-methods-option", "an option of another method", r"rank", "--method", "finetune", "--method.rank", "6"),
    run("method", "a method that there is not", r"magic", "--method", "magic"),
    run("value-missing", "an option without its value", r"lr", "--lr"),
    run("lr-word", "a word as learning rate", r"lr.*fast", "--lr", "fast"),
    run("lr-nan", "a learning rate that is no number", r"lr: expected a number or auto, not 'nan'", "--lr", "nan"),
    run("lr-inf", "an infinite learning rate", r"lr: must be a finite number, not inf", "--lr", "inf"),
    run("lr-negative", "a negative learning rate", r"lr: must be positive, not -0\.1", "--lr=-0.1"),
    run("lr-zero", "a learning rate of 0", r"lr: must be positive, not 0", "--lr", "0"),
    run("steps-zero", "no steps", r"steps: must be at least 1, not 0", "--steps", "0"),
    run("steps-fraction", "half a step", r"steps.*1\.5", "--steps", "1.5"),
    run("steps-huge", "more steps than can be counted", r"steps: must be .*10{30}", "--steps", "1" + "0" * 30),
    run("batch-zero", "a batch of nothing", r"batch_size: must be at least 1, not 0", "--batch-size", "0"),
    run("batch-negative", "a negative batch", r"batch_size: must be at least 1, not -4", "--batch-size=-4"),
    run("batch-huge", "a batch that no memory holds", r"batch_size: must be .*10{12}", "--batch-size", "1" + "0" * 12),
    run("rank-large", "a subspace larger than the embedding", r"method\.rank.*24", "--method.rank", "25"),
    run("rank-zero", "a subspace of nothing", r"method\.rank: must be at least 1, not 0", "--method.rank", "0"),
    run(
        "beta-nan",
        "a weight of a loss that is no number",
        r"method\.beta: expected a number, not 'nan'",
        "--method.beta",
        "nan",
    ),
    run(
        "beta-inf",
        "an infinite weight of a loss",
        r"method\.beta: must be a finite number, not inf",
        "--method.beta",
        "inf",
    ),
    run("tune", "weights that no tower has a name for", r"tune: must be full, lora, .*'half'", "--tune", "half"),
    run("tune-blocks", "more blocks than the tower has", r"tune: the image tower .* 2 blocks", "--tune", "last:3"),
    run("tune-rank", "a rank of updates that there are not", r"lora_rank: needs --tune lora", "--lora-rank", "4"),
    run("precision", "a precision that there is not", r"precision.*int4", "--precision", "int4"),
    run("device", "a device that there is not", r"device: 'tpu'", "--device", "tpu"),
    Bad(
        "arguments/device-number",
        "a GPU that is not there",
        (*RUN, "--device", "cuda:99"),
        r"device: 'cuda:99' is not there",
        needs=("model", "data"),
        varies=r"\d+ CUDA",
    ),
    run(
        "benchmark", "a benchmark that there is not", r"benchmark.*'imagenet-x'.*mtil-mini", "--benchmark", "imagenet-x"
    ),
    run("sequence", "a sequence that there is not", r"sequence.*S9", "--sequence", "S9"),
    run("sequence-task", "a task that the benchmark has not", r"sequence.*'moon'", "--sequence", "dtd,moon"),
    run("sequence-twice", "a task twice", r"sequence.*dtd", "--sequence", "dtd,dtd"),
    run("sequence-empty", "an empty sequence", r"sequence", "--sequence", ""),
    run(
        "split-empty", "steps with no class", r"split_classes: 2\+0 has a step with no class", "--split-classes", "2+0"
    ),
    run("split-words", "steps in words", r"split_classes: expected a number of classes", "--split-classes", "ten"),
    run(
        "split-first",
        "a first step with all classes",
        r"split_classes: 2\+1 has a step with no class: task 'dtd' has 2 classes",
        "--split-classes",
        "2+1",
    ),
    run(
        "class-order-twice",
        "a class twice in an order",
        r"class_order: 'dtd kind 1' is given more than once",
        "--split-classes",
        "1",
        "--class-order",
        "dtd kind 1,dtd kind 1",
    ),
    run(
        "class-order-other",
        "an order of other classes",
        r"class_order: 'moon' is neither a class of task 'dtd' nor a file",
        "--split-classes",
        "1",
        "--class-order",
        "moon,sun",
    ),
    run("class-order-alone", "an order without steps", r"class_order: needs --split-classes", "--class-order", "1993"),
    run("lr-huge", "a learning rate beyond all numbers", r"lr: must be a finite number, not inf", "--lr", "1e999"),
    run("model", "a model that nobody knows", r"model: .*'ViT-Z-99'", "--model", "ViT-Z-99"),
    run(
        "model-folder",
        "a folder of a model that is not there",
        r"nowhere.*open_clip_config\.json",
        "--model",
        "local-dir:nowhere",
    ),
    run(
        "model-without-weights",
        "a model of open_clip without weights",
        r"pretrained: ViT-B-32 needs weights",
        "--model",
        "ViT-B-32",
    ),
    run(
        "tag",
        "weights that the model has not",
        r"pretrained: ViT-B-32 has no tag 'mine'",
        "--model",
        "ViT-B-32",
        "--pretrained",
        "mine",
    ),
    run(
        "template", "a prompt without a place for the name", r"template: 'a photo' has no \{\}", "--template", "a photo"
    ),
    run("betas", "one beta of two", r"betas", "--betas", "[0.9]"),
    run("betas-one", "a beta of 1", r"betas: must lie in \[0, 1\)", "--betas", "[0.9, 1.0]"),
    run(
        "accumulate",
        "passes that do not divide the batch",
        r"batch_size: must be a multiple of accumulate \(3\)",
        "--accumulate",
        "3",
    ),
    run(
        "save-minutes-nan",
        "saving every nan minutes",
        r"--save-minutes: expected a number, not 'nan'",
        "--save-minutes",
        "nan",
    ),
    run("corrupt", "leaving out images without packs", r"corrupt: needs --pack-dir", "--corrupt", "skip"),
    run("tracker", "a tracker that there is not", r"track.*paper-and-pencil", "--track", "paper-and-pencil"),
    run("config-missing", "a configuration that is not there", r"no\.yaml: no such file", "--config", "no.yaml"),
    run(
        "config-folder",
        "a folder as configuration",
        r"data: not a readable text file.*[Ii]s a directory",
        "--config",
        "data",
    ),
    run("config-nothing", "--config without a file", r"--config: expected at least one argument", "--config"),
    run(
        "data-root",
        "a data folder that is not there",
        r"data_root.*nowhere|data set 'dtd' not found.*nowhere",
        "--data-root",
        "nowhere",
    ),
    run("reference", "reference images that are not there", r"reference.*nowhere", "--reference", "nowhere"),
    Bad(
        "words/reference-texts",
        "a file of texts that is not there",
        (*RUN[:-6], "--out", "out", "--method", "zscl", "--reference-texts", "nowhere.txt"),
        r"nowhere\.txt",
        needs=("model", "data"),
    ),
    run(
        "out-is-file",
        "a run folder that is a file",
        r"data/dtd/dtd_annotations\.json.* is a file",
        "--out",
        "data/dtd/dtd_annotations.json",
    ),
    run(
        "out-below-file",
        "a run folder below a file",
        r"dtd_annotations\.json",
        "--out",
        "data/dtd/dtd_annotations.json/run",
    ),
    run(
        "out-strangers",
        "a run folder with other things in it",
        r"data: not a run folder, but not empty",
        "--out",
        "data",
    ),
    run(
        "out-long-name", "a run folder with a name of 300 letters", r"x{50}.*[Ff]ile name too long", "--out", "x" * 300
    ),
    run("flag", "a flag with a value", r"--check-counts: takes no value", "--check-counts=maybe"),
    run("flag-true", "a flag with true after it", r"--overwrite: takes no value", "--overwrite", "true"),
    run("command-misspelt", "a method with two letters swapped", r"Did you mean 'zscl'\?", "--method", "zslc"),
    run("option-misspelt", "an option with two letters swapped", r"Did you mean '--steps'\?", "--stpes", "3"),
    run("task-misspelt", "a task with two letters swapped", r"Did you mean 'eurosat'\?", "--sequence", "euroast"),
    run("too-many", "a word too many", r"'more' is one argument too many", "more"),
    alone("run-as-option", "RUN after --run", r"no option --run: it is tasso eval \[RUN\]", "eval", "--run", "x"),
    alone("data-nothing", "tasso data, and no more", r"data: which\? prepare, check, pack", "data"),
    alone("data-action", "an action that tasso data has not", r"data: no command 'burn'", "data", "burn"),
    alone("bench-nothing", "tasso bench, and no more", r"bench: which\?", "bench"),
    alone(
        "bench-what",
        "a bench that there is not",
        r"WHAT: expected one of step, images, eval, run, not 'luck'",
        "bench",
        "luck",
    ),
    alone(
        "prepare-name",
        "a data set that nobody knows",
        r"moon",
        "data",
        "prepare",
        "moon",
        "--root",
        "data",
        "--no-download",
    ),
    alone("prepare-root", "no folder to prepare data in", r"root", "data", "prepare", "dtd"),
    alone("demo-seed", "a negative seed of the demo", r"seed: must not be negative", "demo", "--seed=-1"),
    alone("eval-after", "a checkpoint without a run", r"after: needs RUN", "eval", "--after", "1"),
]
