"""The rows of a benchmark, and how they are printed."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from importlib.metadata import version

import attrs


@attrs.frozen
class Row:
    """One line: numbers as they are shown, and whether what is promised holds (`None`: nothing is)."""

    what: str
    ours: str
    baseline: str = ""
    ratio: str = ""
    bar: str = ""
    holds: bool | None = None


def compared(what: str, ours: float, baseline: float, most: float, *, unit: str = "ms", scale: float = 1e3) -> Row:
    """A row of two times in seconds; their ratio may be `most`."""
    ratio = ours / baseline
    return Row(
        what,
        f"{ours * scale:.2f} {unit}",
        f"{baseline * scale:.2f} {unit}",
        f"{ratio:.2f}",
        f"<= {most}",
        ratio <= most,
    )


def bounded(what: str, ours: float, most: float, unit: str = "", baseline: str = "") -> Row:
    """A row of a number that may be `most`."""
    number = f"{ours:.2f}".rstrip("0").rstrip(".")
    return Row(what, f"{number} {unit}".strip(), baseline, "", f"<= {most:g} {unit}".strip(), ours <= most)


def machine() -> str:
    """What the numbers were measured on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass  # not every architecture names its model
    bash = shutil.which("bash") or "bash"
    shell = subprocess.run(
        [bash, "-c", "echo $BASH_VERSION"], capture_output=True, text=True, check=True
    ).stdout.strip()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"sandboxsync {version('sandboxsync')}, Python {platform.python_version()}, bash {shell}\n"
        f"Linux {platform.release()}, {os.cpu_count()} x {model}, load {load}"
    )


def print_table(rows: Sequence[Row], ours: str = "ours", baseline: str = "baseline") -> bool:
    """Print rows as a Markdown table, with names for the two sides; return whether all bars hold."""
    head = ("what", ours, baseline, "ratio", "bar", "")
    marks = {True: "ok", False: "MISSED", None: ""}
    lines = [head, *((r.what, r.ours, r.baseline, r.ratio, r.bar, marks[r.holds]) for r in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = tuple("-" * width for width in widths)
    for line in (lines[0], rule, *lines[1:]):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |")
    sys.stdout.flush()
    return all(row.holds is not False for row in rows)


def options_of(module: str, description: str, benchmarks: Collection[str]) -> tuple[list[str], bool]:
    """What the command line asks for: names of benchmarks, and whether they are to be quick."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=description)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(benchmarks)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, numbers less exact")
    options = parser.parse_args()
    if unknown := set(options.names) - set(benchmarks):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options.names or list(benchmarks), options.quick
