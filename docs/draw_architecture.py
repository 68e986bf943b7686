"""The picture of docs/architecture.md: python docs/draw_architecture.py."""

from __future__ import annotations

from blocks import DOCS
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

INK, SOFT, LINE = "#1f2733", "#5a6675", "#c3ccd6"
PLAIN, ENGINE, TASK, LOOP = "#f1f4f7", "#e3edf8", "#fdf0d9", "#e5f3e8"
HEIGHT = 0.92  # of a box


class Canvas:
    """Boxes and arrows in units of a box's height, y upwards."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.axis("off")

    def frame(self, x: float, y: float, width: float, height: float, *, fill: str, edge: str) -> None:
        style = "round,pad=0,rounding_size=0.08"
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, fc=fill, ec=edge, linewidth=1.1))

    def box(self, x: float, y: float, width: float, name: str, about: str, *, fill: str = PLAIN) -> None:
        self.frame(x, y, width, HEIGHT, fill=fill, edge=LINE)
        middle = {"x": x + width / 2, "ha": "center", "va": "center", "color": INK}
        self.axes.text(y=y + HEIGHT - 0.28, s=name, weight="bold", fontsize=11, **middle)
        self.axes.text(y=y + 0.27, s=about, fontsize=9.2, **middle)

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], *, bend: float = 0.0, lazy: bool = False
    ) -> None:
        self.axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=12,
                color=SOFT,
                linewidth=1.3,
                linestyle=(0, (4, 2)) if lazy else "-",
                connectionstyle=f"arc3,rad={bend}",
                shrinkA=1,
                shrinkB=1,
            )
        )

    def say(
        self, x: float, y: float, text: str, *, size: float = 9.2, weight: str = "normal", colour: str = SOFT
    ) -> None:
        self.axes.text(x, y, text, fontsize=size, weight=weight, color=colour, va="center")


def packages(c: Canvas, y: float) -> None:
    """Which package may import which: those in the rows below. `y`: the bottom."""
    c.say(0.4, y + 9.4, "The packages", size=13, weight="bold", colour=INK)
    c.say(2.3, y + 9.39, "A package may import those in the rows below it, and where an arrow says so, within its row.")
    c.box(0.4, y + 8.2, 9.6, "cli", "one sub-command per verb; loads torch only when a verb runs", fill=ENGINE)
    c.box(0.4, y + 7.1, 4.6, "paper", "the paper's experiments and claims", fill=ENGINE)
    c.box(5.4, y + 7.1, 4.6, "testing", "the checks of mast check", fill=ENGINE)
    c.box(0.4, y + 6.0, 1.9, "play", "the playground", fill=ENGINE)
    c.box(2.7, y + 6.0, 2.3, "interop", "ONNX, other libraries", fill=ENGINE)
    c.box(5.4, y + 6.0, 1.9, "swarm", "teams of processes", fill=ENGINE)
    c.box(7.7, y + 6.0, 2.3, "view", "pictures, the replay", fill=ENGINE)
    c.arrow((2.3, y + 6.46), (2.7, y + 6.46))
    c.arrow((5.4, y + 6.46), (5.0, y + 6.46))
    c.arrow((7.3, y + 6.46), (7.7, y + 6.46))
    c.box(0.4, y + 4.9, 4.6, "evaluate", "actors, the loop, rollouts, tables, bench", fill=ENGINE)
    c.box(5.4, y + 4.9, 4.6, "train", "the expert's labels, replay, updates", fill=ENGINE)
    c.box(0.4, y + 3.8, 2.9, "comms", "Algorithm 1 for whole teams", fill=ENGINE)
    c.box(3.7, y + 3.8, 2.6, "model", "the policies", fill=ENGINE)
    c.box(6.7, y + 3.8, 3.3, "tasks", "base.py, world.py, a folder per task", fill=TASK)
    c.box(0.4, y + 2.7, 9.6, "observation", "what robots sense: the one contract between tasks, model and comms")
    c.box(0.4, y + 1.6, 4.6, "space", "neighbours, graphs, cells, Voronoi, assignment")
    c.box(5.2, y + 1.6, 2.0, "explore, files, pool", "small helpers")
    c.box(7.4, y + 1.6, 2.6, "robot", "one robot, in plain numpy")
    c.box(0.4, y + 0.5, 9.6, "errors, chance, kernels, threads, zoo", "import nothing of the package")
    c.arrow((5.4, y + 5.36), (5.0, y + 5.36))
    c.arrow((3.3, y + 4.26), (3.7, y + 4.26))
    c.arrow((10.0, y + 4.35), (10.0, y + 5.25), bend=0.7, lazy=True)
    c.arrow((10.0, y + 4.2), (10.0, y + 6.45), bend=0.6, lazy=True)
    c.say(
        0.4,
        y + 0.1,
        'Dashed: a task names its recipes and its view as "module:Name"; the engine imports them when it uses them.',
    )


def data(c: Canvas, y: float) -> None:
    """One control period, and who uses it. `y`: the bottom."""
    c.say(0.4, y + 7.95, "The way of the data", size=13, weight="bold", colour=INK)
    c.say(3.1, y + 7.94, "B environments with N robots each")
    c.box(0.4, y + 6.75, 2.6, "seeds", "one per environment", fill="white")
    c.box(6.6, y + 6.75, 3.4, "World.draw, World.begin", "start states, from the seeds alone", fill=TASK)
    c.arrow((3.0, y + 7.21), (6.6, y + 7.21))

    c.frame(0.2, y + 2.55, 10.0, 3.85, fill=LOOP, edge="#9cc7a6")
    c.say(
        0.4, y + 6.15, "evaluate/loop.py: one control period of dt seconds", size=9.8, weight="bold", colour="#2d6a3d"
    )
    c.box(6.6, y + 4.95, 3.4, "State", "positions [B, N, 2] m, step [B], ...", fill="white")
    c.box(3.6, y + 4.95, 2.3, "World.observe", "the robots sense", fill=TASK)
    c.box(0.4, y + 4.95, 2.6, "Observation", "features, positions, graph", fill="white")
    c.frame(0.4, y + 2.75, 5.5, 1.75, fill="#f4faf5", edge="#9cc7a6")
    c.say(0.55, y + 4.25, "the robots decide: an actor of evaluate/actors.py, one of", size=8.8, colour=INK)
    c.box(0.55, y + 2.95, 1.6, "Controlled", "a controller", fill=ENGINE)
    c.box(2.35, y + 2.95, 1.6, "Central", "policy, one pass", fill=ENGINE)
    c.box(4.15, y + 2.95, 1.6, "Decentral", "relay, policy", fill=ENGINE)
    c.box(6.6, y + 3.15, 3.4, "World.step", "the robots move", fill=TASK)
    c.arrow((8.3, y + 6.75), (8.3, y + 5.87))
    c.arrow((6.6, y + 5.41), (5.9, y + 5.41))
    c.arrow((3.6, y + 5.41), (3.0, y + 5.41))
    c.arrow((1.7, y + 4.95), (1.7, y + 4.5))
    c.arrow((5.9, y + 3.61), (6.6, y + 3.61))
    c.say(6.05, y + 2.9, "command [B, N, 2], in units of max_speed", size=8.6)
    c.arrow((8.3, y + 4.07), (8.3, y + 4.95))

    c.box(0.4, y + 1.25, 3.0, "rollout", "metrics and recordings", fill=ENGINE)
    c.box(3.7, y + 1.25, 3.0, "train", "labels, replay, updates", fill=ENGINE)
    c.box(7.0, y + 1.25, 3.0, "bench", "time and memory", fill=ENGINE)
    for middle in (1.9, 5.2, 8.5):
        c.arrow((middle, y + 2.17), (middle, y + 2.55))
    c.say(2.05, y + 2.35, "runs the loop", size=8.6)
    c.box(0.4, y + 0.1, 3.0, "tables, replay.html", "by results.py and view", fill="white")
    c.box(3.7, y + 0.1, 3.0, "a policy folder", "config.json, model.safetensors", fill="white")
    c.arrow((1.9, y + 1.25), (1.9, y + 1.02))
    c.arrow((5.2, y + 1.25), (5.2, y + 1.02))


def legend(c: Canvas, y: float) -> None:
    rows = ((ENGINE, "engine: names no task"), (TASK, "a task's own"), (PLAIN, "helper"), ("white", "a value, a file"))
    for number, (fill, text) in enumerate(rows):
        x = 0.4 + 2.5 * number
        c.frame(x, y, 0.32, 0.22, fill=fill, edge=SOFT)
        c.say(x + 0.42, y + 0.11, text)


def draw() -> None:
    canvas = Canvas(11.0, 19.1)
    packages(canvas, 9.2)
    data(canvas, 0.75)
    legend(canvas, 0.25)
    canvas.figure.savefig(DOCS / "pictures" / "architecture.png", dpi=120)


if __name__ == "__main__":
    draw()
