"""The page with a row for every claim of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mast_swarm.files import whole_file
from mast_swarm.paper.cells import Result
from mast_swarm.paper.claims import CLAIMS, PROPERTIES, SHOWN
from mast_swarm.paper.effort import lacking
from mast_swarm.paper.experiment import FAILS, HOLDS, LEVEL, NOT_RUN, PARTLY, Found, Report, Row, Size
from mast_swarm.paper.judge import table

UNKNOWN = "not recorded"
_OF_CELLS = (
    "Written by `mast reproduce --report`: evaluations, and the trainings of the policies that they need. A cell is "
    "kept under its key, a hash of its settings. Seconds of a policy that was trained together with others are its "
    "share; of a training that was stopped and went on, those of all its epochs.\n\n"
)
_NOT_DRAWN = (
    "Two figures of the paper have no experiment, because they show no result: Fig. 5, a sketch of how assignments by "
    "distance and by squared distance differ, and Fig. 13, the loop of perception, action and communication for "
    "coverage (row 41 has its network). Receptive fields (row 57) are a claim without a figure in the paper.\n"
)


def write_report(reports: list[Report], out: Path, size: Size) -> Path:
    """Writes OUT/README.md and OUT/cells.md; the path of the first."""
    rows = {row.claim: (row, report) for report in reports for row in report.rows}
    missing = sorted(set(CLAIMS) - set(rows))
    if missing:
        raise AssertionError(f"no experiment judges the claims {missing}")
    _write(out / "cells.md", _cells(reports))
    _write(out / "README.md", _page(reports, rows, out, size))
    return out / "README.md"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def _page(reports: list[Report], rows: dict[int, tuple[Row, Report]], out: Path, size: Size) -> str:
    body = []
    for claim in sorted(CLAIMS):
        row, report = rows[claim]
        verdict = row.verdict if row.verdict != NOT_RUN else f"{NOT_RUN}: {row.why}"
        why = "" if row.verdict == NOT_RUN else row.why.replace("; ", "<br>")  # a part of it a line
        link = f"[{report.experiment.name}](#{report.experiment.name}) ({report.experiment.paper})"
        body.append([str(claim), CLAIMS[claim], row.recipe, row.best, verdict, why, link])
    head = [
        "#",
        "the paper says",
        "by the paper's recipe",
        "by recipes of ours",
        "holds?",
        "measured how",
        "experiment, and what it is of the paper",
    ]
    parts = [
        "# Every figure, table and claim of the paper\n\n",
        "A page that `mast reproduce --all --report` writes; nothing here is written by hand. M, L and C are the "
        "paper's variants of MAST: M attends within a window and its component of the network, L within the window "
        "alone, and C sees everything. R_att is the radius of the window, tau the time that a message takes per hop, "
        "dt the control period, and CVT a controller by centroidal Voronoi tessellation. Numbers are means with "
        "half of their 95 % interval. *Holds* means what the column *measured how* says: that the interval of a "
        "difference lies on the paper's side of 0, that numbers are in the order or near the values of the paper, or "
        "that a figure or table is there. *Within interval* means that the interval of the difference, or of one "
        "of several, contains 0 or the limit of what counts as near, and none lies on the other side, "
        "*partly* that some parts of a claim hold, or that a part was not run. All intervals are "
        "bootstrapped (of means that were taken over from a summary they are Student's t): judged is by their ends, "
        "shown is half their width. Differences are paired over the same start states unless they say that they are "
        "not. Numbers by recipes of ours are of `mast-m`, the recipe `best` (of `mast-l` and `mast-c` where a claim is "
        "about L and C), unless they name `mast-m-sharp`, of the recipe `sharp`, which is better in navigation. "
        "`mast-m-paper` is of the paper's recipe. Figures and tables are counted in the order of the paper's "
        "source.\n\n",
        "**These are numbers of `--quick`: they say nothing.**\n\n" if size.quick else "",
        _counts({claim: row.verdict for claim, (row, _) in rows.items()}),
        "\n[Every cell with its hardware and time](cells.md).\n\n",
        table(head, body),
        f"\n## Experiments\n\n{_NOT_DRAWN}\n",
    ]
    for report in reports:
        experiment = report.experiment
        parts.append(
            f"### {experiment.name}\n\n{experiment.title[0].upper()}{experiment.title[1:]} ({experiment.paper}). "
        )
        found = Found(report.cells, report.results, size)
        lack = f"{lacking(found)}." if report.lacking else ""
        about = (f"{len(report.cells)} cells: `mast reproduce {experiment.name}`.", lack, experiment.notes)
        said = (" ".join(part for part in about if part), experiment.says(found).rstrip("\n"))
        parts.append("".join(f"{part}\n\n" for part in said if part))
        if (out / "figures" / f"{experiment.name}.png").exists():
            pdf = f"([PDF](figures/{experiment.name}.pdf))"
            parts.append(f"![{experiment.title}](figures/{experiment.name}.png)\n\n{pdf}\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def _counts(verdicts: dict[int, str]) -> str:
    """How many claims of each kind hold."""
    kinds = {
        "results": set(CLAIMS) - PROPERTIES - SHOWN,
        "properties of the method": PROPERTIES,
        "figures, tables, searches and settings, which hold if they are there": SHOWN,
        "all": set(CLAIMS),
    }
    order = [verdict for verdict in (HOLDS, PARTLY, LEVEL, FAILS, NOT_RUN) if verdict in verdicts.values()]
    body = []
    for kind, claims in kinds.items():
        count = Counter(verdicts[claim] for claim in claims)
        body.append([kind, str(len(claims)), *(str(count[verdict]) for verdict in order)])
    return table(["claims", "number", *order], body)


def _cells(reports: list[Report]) -> str:
    """Where every cell ran and how long it took, and every training of the policies that cells need."""
    seen: dict[str, list[str]] = {}
    for report in reports:
        for cell, result in (*((report.cells[name], one) for name, one in report.results.items()), *report.trained):
            about = result.about
            row = [cell.label or cell.kind, cell.kind]
            row += [
                about.get("device", UNKNOWN),
                _precision(about),
                UNKNOWN if (spent := seconds_of(result)) is None else f"{spent:.1f}",
                str(about.get("from", "run here")),
                cell.key,
            ]
            seen.setdefault(cell.key, row)
    head = ["cell", "kind", "hardware", "precision", "seconds", "taken from", "key"]
    return "# Cells\n\n" + _OF_CELLS + table(head, sorted(seen.values()))


def _precision(about: Mapping[str, Any]) -> str:
    """Of a training that does not say it, that of its settings, which is only computed in on a GPU."""
    settings = about.get("config", {})
    usual = settings["precision"] if "precision" in settings and not about["device"].endswith("CPU") else UNKNOWN
    return str(about.get("precision", usual))


def seconds_of(result: Result) -> float | None:
    """What a cell took, if that is known. A training that was stopped and went on took the time of all its epochs; one
    of several that were trained together, its share."""
    spent, columns = result.about.get("seconds"), result.table.column_names
    if "epoch" in columns and "seconds" in columns:
        epochs = sum(result.table["seconds"].to_pylist()) / result.about.get("together", 1)
        spent = max(spent or 0.0, epochs)
    return spent
