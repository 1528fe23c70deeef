"""One drawing per method. Curves, projections, means and choices are computed from the formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

from method_figures.pen import Point, Sheet


def tasso() -> Sheet:
    """The sphere of embeddings, the subspace, the two parts of an embedding and the two angles."""
    sheet = Sheet("tasso", 720, 350)
    centre, radius = (185.0, 185.0), 140.0
    tilt = math.radians(24)

    def seen(x: float, y: float, z: float) -> Point:
        return centre[0] + radius * x, centre[1] - radius * (z * math.cos(tilt) + y * math.sin(tilt))

    def at(longitude: float, latitude: float, length: float = 1) -> Point:
        east, up = math.radians(longitude), math.radians(latitude)
        flat = math.cos(up)
        return seen(*(length * part for part in (flat * math.cos(east), flat * math.sin(east), math.sin(up))))

    sheet.dot(centre, radius, fill="panel", edge="soft")
    sheet.oval(centre, (radius, radius * math.sin(tilt)), fill="student", edge="student", opacity=0.14)
    student, teacher = (-38.0, 50.0), (-136.0, 40.0)
    for (longitude, latitude), colour, name in ((student, "student", "f"), (teacher, "teacher", "f′")):
        tip = at(longitude, latitude)
        flat = math.cos(math.radians(latitude))
        foot = at(longitude, 0, flat)
        sheet.line([tip, foot], colour, 1.4, dash="4 4")
        sheet.line([centre, foot], colour, 1.4, dash="4 4")
        sheet.line([foot, at(longitude, 0)], colour, 1.4, dash="1 4")
        sheet.dot(at(longitude, 0), 4, colour)
        sheet.line([centre, tip], colour, 2.4, arrow=True)
        sheet.text((tip[0] + (8 if name == "f" else -20), tip[1] - 4), name, colour, 17, bold=True)
    sheet.line([at(longitude, 0) for longitude in range(-136, -37, 2)], "ink", 3)
    sheet.text((at(-87, 0)[0], at(-87, 0)[1] + 22), "angle inside", size=14, anchor="middle")
    sheet.text((centre[0] - 36, centre[1] - 30), "span of U", "student", 14)
    foot = at(student[0], 0, math.cos(math.radians(student[1])))
    sheet.text((foot[0] + 8, foot[1] - 14), "f_{⊥}", "student", 15)
    sheet.text((foot[0] - 34, foot[1] - 10), "f_{∥}", "student", 15)
    # In three dimensions the orthogonal complement is a line; with d dimensions it has d − r.
    middle, small = (540.0, 190.0), 92.0
    sheet.line([(345, 60), (430, 110)], "soft", 1.4, dash="5 4", arrow=True)
    sheet.text((352, 50), "orthogonal complement of U, d − r dimensions", "soft", 13)
    sheet.dot(middle, small, fill="panel", edge="soft")
    for degrees, colour, name in ((62.0, "student", "f_{⊥}"), (104.0, "teacher", "f′_{⊥}")):
        x, y = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        sheet.line([middle, (middle[0] + small * x, middle[1] - small * y)], colour, 2.4, arrow=True)
        sheet.text((middle[0] + 1.16 * small * x - 6, middle[1] - 1.12 * small * y), name, colour, 16, bold=True)
    rim = [math.radians(degrees) for degrees in range(64, 104, 3)]
    sheet.line([(middle[0] + small * math.cos(a), middle[1] - small * math.sin(a)) for a in rim], "ink", 3)
    sheet.text((540, 215), "angle outside", anchor="middle")
    sheet.text((540, 310), "L_{KD} = angle inside + angle outside", anchor="middle", size=15, bold=True)
    sheet.text((540, 333), "student f, teacher f′, the same reference image", "soft", 13, "middle")
    return sheet


def tasso_both() -> Sheet:
    """What goes through the two towers, and what it is compared with."""
    sheet = Sheet("tasso-both", 720, 300)
    rows = ((70.0, "image tower", "images of the task", "reference images"),
            (200.0, "text tower", "class prompts of the task", "anchor prompts"))  # fmt: skip
    for top, tower, learned, held in rows:
        for shift, words, colour in ((0, learned, "ink"), (44, held, "teacher")):
            sheet.box((16, top + shift - 16), (190, 34))
            sheet.text((111, top + shift + 6), words, colour, 14, "middle")
            sheet.line([(210, top + shift), (262, top + 22)], "soft", 1.4, arrow=True)
        sheet.box((268, top - 8), (120, 60), "student", opacity=0.16)
        sheet.text((328, top + 27), tower, "student", 15, "middle", bold=True)
        sheet.line([(392, top + 34), (446, top + 44)], "teacher", 1.6, arrow=True)
        sheet.box((452, top + 28), (252, 34))
        sheet.text((578, top + 50), "angles to the model before the task", "teacher", 14, "middle")
    for start, end in (((392.0, 84.0), (446.0, 132.0)), ((392.0, 212.0), (446.0, 168.0))):
        sheet.line([start, end], "student", 1.6, arrow=True)
    sheet.box((452, 136), (252, 34), "student", opacity=0.16)
    sheet.text((578, 158), "cross-entropies, whole and inside U", "student", 14, "middle")
    sheet.text((360, 28), "Anchor prompts: names of earlier tasks and generic names", "ink", 15, "middle", bold=True)
    weights = "β weighs the angles of images, γ those of texts, δ a cross-entropy over all classes so far"
    sheet.text((360, 288), weights, "soft", 13, "middle")
    return sheet


def finetune() -> Sheet:
    """Weights that move from the minimum of one task to that of the next."""
    sheet = Sheet("finetune", 720, 300)
    for at, colour, name, place in (
        ((150.0, 170.0), "soft", "low loss: pretraining", (150, 282)),
        ((370.0, 130.0), "third", "low loss: task 1", (370, 250)),
        ((580.0, 170.0), "student", "low loss: task 2", (580, 282)),
    ):
        for scale in (1.0, 0.68, 0.36):
            sheet.oval(at, (118 * scale, 88 * scale), fill=colour, edge=colour, turn=-14, opacity=0.1)
        sheet.text(place, name, colour, 14, "middle")
    first = [(150 + 215 * t, 170 - 38 * t - 34 * math.sin(math.pi * t)) for t in _steps(24)]
    second = [(365 + 210 * t, 132 + 36 * t - 34 * math.sin(math.pi * t)) for t in _steps(24)]
    sheet.line(first, "ink", 2.6, arrow=True)
    sheet.line(second, "ink", 2.6, arrow=True)
    for at, name, side in (
        ((150.0, 170.0), "θ_{0}", -28),
        ((368.0, 132.0), "θ_{1}", 10),
        ((578.0, 168.0), "θ_{2}", 12),
    ):
        sheet.dot(at, 5, "ink")
        sheet.text((at[0] + side, at[1] + 22), name, size=17, bold=True)
    sheet.text((214, 72), "CE of task 1", "ink", 13, "middle")
    sheet.text((546, 66), "CE of task 2", "ink", 13, "middle")
    sheet.text(
        (360, 24), "No term holds the weights: each task moves them away from earlier minima", "ink", 15, "middle"
    )
    return sheet


def lwf() -> Sheet:
    """Similarities of images and classes, teacher's and student's, compared along rows and along columns."""
    sheet = Sheet("lwf", 720, 320)
    # Cosines of five images of the new task with four classes, as teacher and student might have them.
    old = [[0.30, 0.27, 0.24, 0.22], [0.25, 0.26, 0.27, 0.23], [0.24, 0.25, 0.29, 0.26], [0.26, 0.23, 0.25, 0.27],
           [0.27, 0.28, 0.24, 0.25]]  # fmt: skip
    new = [[0.33, 0.25, 0.22, 0.21], [0.23, 0.31, 0.25, 0.22], [0.22, 0.24, 0.33, 0.24], [0.23, 0.22, 0.24, 0.32],
           [0.25, 0.31, 0.22, 0.23]]  # fmt: skip
    side = 38
    for table, left, colour, title in (
        (old, 96, "teacher", "teacher: the model before the task"),
        (new, 450, "student", "student: both towers are trained"),
    ):
        sheet.text((left + 2 * side, 26), title, colour, 15, "middle", bold=True)
        sheet.text((left + 2 * side, 48), "the teacher's class texts", "soft", 13, "middle")
        for row, cosines in enumerate(table):
            top = 58 + row * side
            shares = _softmax([100 * cosine / 2 for cosine in cosines])
            for column, share in enumerate(shares):
                sheet.box(
                    (left + column * side, top), (side - 3, side - 3), colour, opacity=0.1 + 0.9 * share, radius=3
                )
    sheet.text((84, 150), "images of", "soft", 13, "end")
    sheet.text((84, 168), "new task", "soft", 13, "end")
    for row in (0, 2, 4):
        y = 58 + row * side + 17
        sheet.line([(440, y), (262, y)], "ink", 1.5, arrow=True)
        sheet.line([(262, y), (440, y)], "ink", 1.5, arrow=True)
    sheet.text((350, 66), "D, row by row", anchor="middle", size=14)
    for left in (96, 450):
        sheet.line(
            [(left + side / 2, 256), (left + side / 2, 272), (left + 3.5 * side, 272), (left + 3.5 * side, 256)],
            "soft",
            1.4,
        )
    sheet.line([(96 + 4 * side, 272), (450 - 8, 272)], "ink", 1.5, arrow=True)
    sheet.line([(450 - 8, 272), (96 + 4 * side, 272)], "ink", 1.5, arrow=True)
    sheet.text((346, 292), "D^{T}, column by column: over the images of a batch", anchor="middle", size=14)
    sheet.text((350, 314), "shades: softmax(100 · cosine / T), T = 2", "soft", 13, "middle")
    return sheet


def icarl() -> Sheet:
    """How exemplars are chosen, and how the memory is divided among tasks."""
    sheet = Sheet("icarl", 720, 335)
    cloud = [(0.30, 0.62), (0.42, 0.78), (0.55, 0.52), (0.66, 0.74), (0.72, 0.40), (0.36, 0.36), (0.85, 0.62),
             (0.52, 0.90), (0.20, 0.50), (0.60, 0.24), (0.80, 0.82), (0.47, 0.64)]  # fmt: skip
    chosen = _herd(cloud, 4)
    mean = (sum(x for x, _ in cloud) / len(cloud), sum(y for _, y in cloud) / len(cloud))

    def place(at: Point) -> Point:
        return 30 + 270 * at[0], 300 - 250 * at[1]

    sheet.text((165, 26), "herding: images of one class", "ink", 15, "middle", bold=True)
    sheet.box((30, 40), (280, 250))
    for number, at in enumerate(cloud):
        if number not in chosen:
            sheet.dot(place(at), 5, "soft", opacity=0.6)
    for rank, number in enumerate(chosen, 1):
        x, y = place(cloud[number])
        sheet.dot((x, y), 11, "teacher")
        sheet.text((x, y + 5), str(rank), "paper", 14, "middle", bold=True)
    x, y = place(mean)
    sheet.line([(x - 9, y), (x + 9, y)], "student", 3)
    sheet.line([(x, y - 9), (x, y + 9)], "student", 3)
    sheet.text((170, 308), "each next one brings the mean of the", "soft", 13, "middle")
    sheet.text((170, 325), "chosen closest to that of all (+)", "soft", 13, "middle")
    sheet.text((535, 26), "memory of K images after each task", "ink", 15, "middle", bold=True)
    colours = ("third", "student", "teacher", "soft")
    for tasks in range(1, 5):
        left, height = 380 + 84 * (tasks - 1), 224
        for task in range(tasks):
            share = height / tasks
            sheet.box((left, 58 + task * share), (56, share - 3), colours[task], opacity=0.75, radius=4)
            sheet.text(
                (left + 28, 58 + task * share + share / 2 + 4), f"task {task + 1}", "paper", 13, "middle", bold=True
            )
        sheet.text((left + 28, 302), f"K / {tasks}" if tasks > 1 else "K", "ink", 14, "middle")
    sheet.text((535, 325), "exemplars chosen last are dropped first", "soft", 13, "middle")
    return sheet


def zscl() -> Sheet:
    """A trajectory of the weights, its mean, and the anchor at its start."""
    sheet = Sheet("zscl", 720, 320)
    path = [(110 + 420 * t, 230 - 150 * math.sin(1.9 * t) + 26 * math.sin(9 * t)) for t in _steps(60)]
    sheet.line(path, "ink", 2.2, arrow=True)
    # The weights at the start, at steps 0, 100, … and at the end; here every sixth of sixty points.
    kept = path[::6]
    mean = (sum(x for x, _ in kept) / len(kept), sum(y for _, y in kept) / len(kept))
    for at in kept:
        sheet.line([at, mean], "student", 1, dash="3 4")
    for at in kept:
        sheet.dot(at, 5, "student")
    sheet.dot(mean, 9, "student", edge="ink")
    sheet.text((mean[0] + 104, mean[1] + 44), "mean of the dots:", "student", 14, "middle", bold=True)
    sheet.text((mean[0] + 104, mean[1] + 62), "saved, evaluated, passed on", "student", 14, "middle")
    start, end = path[0], path[-1]
    sheet.line(_spring((start[0] + 6, start[1] + 10), (end[0] - 4, end[1] + 116), 26), "teacher", 1.5)
    sheet.line([(end[0] - 4, end[1] + 116), (end[0], end[1] + 8)], "teacher", 1.5)
    sheet.text((350, 288), "anchor: λ · ‖θ − θ_{start}‖²", "teacher", 15, "middle", bold=True)
    sheet.text((start[0] - 66, start[1] + 6), "θ_{start}", size=17, bold=True)
    sheet.text((end[0] + 14, end[1] + 4), "θ, last step", size=14)
    sheet.text((360, 26), "dots: weights at the start, at every 100th step and at the end", "ink", 15, "middle")
    sheet.text(
        (360, 312),
        "in every step the pretrained model is the teacher, on reference images and texts",
        "soft",
        13,
        "middle",
    )
    return sheet


def moe() -> Sheet:
    """A block with experts beside its MLP, one router per task, and the task selector."""
    sheet = Sheet("moe", 720, 370)
    sheet.text((112, 24), "task selector", "ink", 15, "middle", bold=True)
    for number, (name, error) in enumerate((("task 1", 62), ("task 2", 18), ("task 3", 48), ("reference", 70))):
        top = 44 + 52 * number
        best = number == 1
        sheet.box((20, top), (184, 40), "panel", "student" if best else "")
        sheet.text((32, top + 25), name, "student" if best else "ink", 14, bold=best)
        sheet.box((114, top + 13), (80 * error / 80, 14), "student" if best else "soft", radius=3)
    sheet.text((112, 272), "bars: error of its auto-encoder", "soft", 13, "middle")
    sheet.text((112, 292), "The lowest selects the router.", "soft", 13, "middle")
    sheet.text((112, 312), "Reference, or all too high:", "soft", 13, "middle")
    sheet.text((112, 332), "no experts, plain CLIP.", "soft", 13, "middle")
    sheet.line([(206, 116), (262, 116)], "student", 2.4, arrow=True)
    sheet.box((266, 92), (84, 48), "panel", "student")
    sheet.text((308, 113), "router of", "student", 14, "middle", bold=True)
    sheet.text((308, 130), "task 2", "student", 14, "middle", bold=True)
    sheet.text((308, 166), "reads token 0", "soft", 13, "middle")
    sheet.text((460, 24), "experts", "ink", 15, "middle", bold=True)
    shares = {2: 0.7, 5: 0.3}
    for expert in range(8):
        top = 38 + 35 * expert
        frozen = expert in (0, 2)
        active = expert in shares
        sheet.line(
            [(350, 116), (412, top + 14)],
            "student" if active else "soft",
            1 + 5 * shares.get(expert, 0),
            "" if active else "2 5",
        )
        sheet.box(
            (414, top), (92, 28), "student" if active else "panel", "teacher" if frozen else "", 0.85 if active else 1
        )
        label = f"{expert + 1}" + (" frozen" if frozen else "")
        sheet.text((460, top + 19), label, "paper" if active else "ink", 13, "middle", bold=active)
        if active:
            sheet.line([(506, top + 14), (560, 176)], "student", 1 + 5 * shares[expert])
    sheet.text((460, 338), "the two that a task used most", "soft", 13, "middle")
    sheet.text((460, 356), "are frozen after it", "soft", 13, "middle")
    sheet.text((632, 24), "a block of CLIP", "ink", 15, "middle", bold=True)
    sheet.line([(660, 330), (660, 44)], "ink", 2, arrow=True)
    sheet.text((672, 324), "x", size=16, bold=True)
    sheet.box((600, 262), (112, 34), "panel", "soft")
    sheet.text((656, 284), "attention", "ink", 14, "middle")
    sheet.box((600, 202), (112, 34), "panel", "soft")
    sheet.text((656, 224), "MLP", "ink", 14, "middle")
    sheet.dot((660, 176), 12, "paper", "ink")
    sheet.text((660, 182), "+", "ink", 17, "middle", bold=True)
    sheet.line([(560, 176), (644, 176)], "student", 3, arrow=True)
    sheet.text((602, 164), "y(x)", "student", 14, "middle")
    sheet.text((640, 346), "in both towers;", "soft", 13, "middle")
    sheet.text((640, 363), "CLIP itself is frozen", "soft", 13, "middle")
    return sheet


def gift() -> Sheet:
    """Images generated from prompts, the alignment targets, and the consolidation of weights."""
    sheet = Sheet("gift", 720, 340)
    sheet.text((110, 24), "image–prompt pairs", "ink", 15, "middle", bold=True)
    names = ("a photo of a rose.", "a photo of a bus.", "a photo of a rose.", "a photo of a cat.", "a photo of a pie.")
    for number, name in enumerate(names):
        top = 48 + 48 * number
        sheet.text((8, top + 21), name, "third", 13)
        sheet.line([(124, top + 17), (164, top + 17)], "third", 1.6, arrow=True)
        sheet.box((170, top), (36, 34), "third", opacity=0.25)
        for x, y in ((180, 24), (188, 12), (196, 22)):
            sheet.dot((x, top + y), 4, "third")
    sheet.text((110, 312), "names of classes learned", "soft", 13, "middle")
    sheet.text((110, 330), "before, and of the reference set", "soft", 13, "middle")
    left, side = 268, 42
    sheet.text((left + 2.5 * side, 24), "alignment targets Y", "ink", 15, "middle", bold=True)
    for row, image in enumerate(names):
        for column, text in enumerate(names):
            share = (image == text) / names.count(text)
            sheet.box((left + column * side, 48 + row * side), (side - 4, side - 4), "student" if share else "panel",
                      opacity=0.3 + 0.7 * share if share else 1, radius=3)  # fmt: skip
            if share:
                words, colour = ("½", "ink") if share < 1 else ("1", "paper")
                sheet.text((left + column * side + 19, 48 + row * side + 24), words, colour, 14, "middle")
    sheet.text((left + 2.5 * side, 280), "the student learns Y (alignment)", "student", 13, "middle")
    sheet.text((left + 2.5 * side, 300), "and the teacher's similarities", "teacher", 13, "middle")
    sheet.text((left + 2.5 * side, 318), "(distillation, both ways)", "teacher", 13, "middle")
    sheet.text((612, 24), "weight consolidation", "ink", 15, "middle", bold=True)
    gradients = (0.2, 1.4, 0.6, 0.1, 1.0)
    mean = sum(g * g for g in gradients) / len(gradients)
    sheet.line([(520, 48), (520, 272)], "ink", 3)
    for number, gradient in enumerate(gradients):
        y, fisher = 66 + 47 * number, gradient * gradient / mean
        sheet.line(_spring((520, y), (640, y), 5 + round(4 * fisher)), "teacher", 1 + 1.1 * fisher)
        sheet.dot((648, y), 8, "student")
        sheet.text((664, y + 5), f"{fisher:.1f}", "teacher", 14)
    sheet.text((612, 300), "Φ = g² / mean(g²), g from", "soft", 13, "middle")
    sheet.text((612, 318), "distillation and alignment", "soft", 13, "middle")
    return sheet


def snd() -> Sheet:
    """The weight of each teacher over the distance between them, with the values of the authors' code."""
    sheet = Sheet("snd", 720, 340)
    left, bottom, width, height, far = 90.0, 270.0, 400.0, 220.0, 0.8

    def at(distance: float, share: float) -> Point:
        return left + width * distance / far, bottom - height * share

    sheet.box((left, bottom - height), (width, height))
    for share in (0.0, 0.5, 1.0):
        sheet.line([at(0, share), at(far, share)], "soft", 1, dash="2 5")
        sheet.text((left - 10, at(0, share)[1] + 5), f"{share:g}", "soft", 14, "end")
    for tenth in range(0, 9, 2):
        sheet.text((at(tenth / 10, 0)[0], bottom + 20), f"{tenth / 10:g}", "soft", 14, "middle")
    curve = [at(far * t, 1 / (1 + math.exp(-6 * (far * t - 0.2)))) for t in _steps(60)]
    other = [at(far * t, 1 - 1 / (1 + math.exp(-6 * (far * t - 0.2)))) for t in _steps(60)]
    sheet.line(other, "third", 2.6)
    sheet.line(curve, "teacher", 3)
    sheet.line([at(0.2, 0), at(0.2, 0.5)], "ink", 1.4, dash="4 4")
    sheet.dot(at(0.2, 0.5), 5, "ink")
    sheet.text((at(0.2, 0)[0] + 6, bottom - 8), "threshold 0.2", size=13)
    sheet.text((at(0.6, 0)[0], at(0, 0.76)[1]), "q: previous model", "teacher", 15, "middle", bold=True)
    sheet.text((at(0.57, 0)[0], at(0, 0.3)[1]), "1 − q: pretrained model", "third", 15, "middle", bold=True)
    sheet.text(
        (left + width / 2, 314),
        "δ: distance between the two teachers on a reference image",
        size=14,
        anchor="middle",
    )
    sheet.text((left + width / 2, 28), "q = σ(6 · (δ − 0.2))", size=15, anchor="middle", bold=True)
    x = 516
    for y, words, colour in (
        (76, "Teachers agree: the image", "ink"), (95, "resembles no learned task.", "ink"),
        (116, "Stay near the pretrained", "third"), (135, "model, weight 0.5.", "third"),
        (178, "Teachers differ: the image", "ink"), (197, "resembles a learned task.", "ink"),
        (218, "Stay near the previous", "teacher"), (237, "model, weight 9.", "teacher"),
    ):  # fmt: skip
        sheet.text((x, y), words, colour, 14)
    return sheet


DRAWINGS: dict[str, Callable[[], Sheet]] = {
    "tasso": tasso, "finetune": finetune, "lwf": lwf, "icarl": icarl, "zscl": zscl, "moe-adapters": moe, "gift": gift,
    "snd": snd, "tasso-both": tasso_both,
}  # fmt: skip


def _steps(count: int) -> list[float]:
    return [number / count for number in range(count + 1)]


def _softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(logit - max(logits)) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def _herd(points: list[Point], count: int) -> list[int]:
    """Greedy herding in the plane: the mean of the chosen stays closest to the mean of all."""
    goal = [sum(point[axis] for point in points) / len(points) for axis in (0, 1)]
    chosen: list[int] = []
    for k in range(1, count + 1):
        totals = [sum(points[number][axis] for number in chosen) for axis in (0, 1)]

        def miss(number: int, k: int = k, totals: list[float] = totals) -> float:
            return math.hypot(*(goal[axis] - (totals[axis] + points[number][axis]) / k for axis in (0, 1)))

        chosen.append(min((number for number in range(len(points)) if number not in chosen), key=miss))
    return chosen


def _spring(start: Point, end: Point, coils: int) -> list[Point]:
    """A zigzag between two points, straight at both ends."""
    length = math.hypot(end[0] - start[0], end[1] - start[1])
    along = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    points, margin = [start], 0.1 * length
    for number in range(2 * coils + 1):
        way = margin + (length - 2 * margin) * number / (2 * coils)
        off = 0.0 if number in (0, 2 * coils) else (7.0 if number % 2 else -7.0)
        points.append((start[0] + way * along[0] - off * along[1], start[1] + way * along[1] + off * along[0]))
    return [*points, end]
