"""Plots of a comparison as SVG elements for a page, with positions in percent.

Without a view box a plot is as wide as its place and its text stays as large as that of the page.
Colors are classes of the page's style; every series also has a form of its own.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mpexport.parity.exact import Octaves
from mpexport.render.parity_document import OutputView

# Share of the width, in percent: left of the axis there is room for exact zeros.
_ZERO = 2.5
_LEFT, _RIGHT = 7.0, 95.0
_ROW_PX = 44
_PLOT_PX, _AXIS_PX = 104, 20
# More bars than this are merged, several octaves into one.
_MOST_BARS = 72
_MOST_TICKS = 6
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis from 10^low to 10^high; zero has a place left of it."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> LogAxis:
        """Whole decades around the positive, finite ones of the values."""
        logs = [math.log10(v) for v in values if 0 < v < math.inf]
        if not logs:
            return cls(-8.0, 0.0)
        low, high = math.floor(min(logs)), math.ceil(max(logs))
        return cls(low, max(high, low + 1))

    def place(self, value: float) -> float:
        """The position in percent of the width; what is beyond the axis stands at its end."""
        if value <= 0:
            return _ZERO
        log = math.log10(value) if value < math.inf else self.high
        share = (log - self.low) / (self.high - self.low)
        return _LEFT + (_RIGHT - _LEFT) * min(max(share, 0.0), 1.0)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Positions and labels of powers of ten."""
        first, last = math.ceil(self.low), math.floor(self.high)
        step = max(1, math.ceil((last - first + 1) / _MOST_TICKS))
        for exponent in range(first, last + 1, step):
            share = (exponent - self.low) / (self.high - self.low)
            yield _LEFT + (_RIGHT - _LEFT) * share, power_of_ten(exponent)


def power_of_ten(exponent: int) -> str:
    """For an axis.

    >>> power_of_ten(-12), power_of_ten(0)
    ('10⁻¹²', '1')
    """
    return f"10{str(exponent).translate(_SUPERSCRIPT)}" if exponent else "1"


def mark(kind: str, x: float, y: float, title: str = "") -> str:
    """A mark: ``candidate`` is a disc, ``trained`` a diamond, ``rounded`` a square.

    Args:
        kind: One of these.
        x: In percent.
        y: In pixels.
        title: What a pointer over it shows.
    """
    shown = f"<title>{html.escape(title)}</title>" if title else ""
    form = {
        "candidate": '<circle r="6"/>',
        "trained": '<path d="M0-7.5 7 0 0 7.5-7 0z"/>',
        "rounded": '<rect x="-5" y="-5" width="10" height="10"/>',
    }[kind]
    return (
        f'<svg x="{x:.2f}%" y="{y:.0f}" overflow="visible">'
        f'<g class="mark {kind}">{shown}{form}</g></svg>'
    )


def _frame(axis: LogAxis, height: int, *, has_zero: bool) -> str:
    """Grid lines and labels of the axis, which is below."""
    base = height - _AXIS_PX
    parts = [f'<line class="axis" x1="{_LEFT}%" x2="{_RIGHT}%" y1="{base}" y2="{base}"/>']
    ticks = list(axis.ticks())
    if has_zero:
        ticks.insert(0, (_ZERO, "0"))
    for x, label in ticks:
        parts.append(f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="4" y2="{base}"/>')
        parts.append(
            f'<text class="tick" x="{x:.2f}%" y="{height - 5}" text-anchor="middle">{label}</text>'
        )
    return "".join(parts)


def _picture(identity: str, title: str, description: str, height: int, body: str) -> str:
    return (
        f'<svg class="plot" role="img" aria-labelledby="{identity}-t {identity}-d" '
        f'width="100%" height="{height}">'
        f'<title id="{identity}-t">{html.escape(title)}</title>'
        f'<desc id="{identity}-d">{html.escape(description)}</desc>{body}</svg>'
    )


def shorten(name: str, most: int = 40) -> str:
    """The name with its middle left out where it is longer."""
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def _known(output: OutputView, name: str) -> float | None:
    """A number that has a place on an axis."""
    value = output.number(name)
    return None if value is None or math.isnan(value) else value


def strips(identity: str, outputs: Sequence[OutputView]) -> str:
    """A row per output: the candidate's error against the noise floor, on one logarithmic axis."""
    names = ("max_abs", "noise_floor", "rounding_floor", "abs_p50")
    values = [v for o in outputs for v in (_known(o, n) for n in names) if v is not None]
    axis = LogAxis.over(values)
    height = _ROW_PX * len(outputs) + _AXIS_PX + 4
    has_zero = any(v <= 0 for v in values)
    rows = [_strip(axis, output, i) for i, output in enumerate(outputs)]
    spoken = "; ".join(
        f"{o.name}: error {o.shown('max_abs')}, noise floor {o.shown('noise_floor')}"
        for o in outputs
    )
    body = _frame(axis, height, has_zero=has_zero) + "".join(rows)
    return _picture(identity, "Error against the noise floor, per output", spoken, height, body)


def _strip(axis: LogAxis, output: OutputView, row: int) -> str:
    top = _ROW_PX * row + 2
    y = top + 29.0
    name = f'<text class="name" x="0.5%" y="{top + 13}">{html.escape(shorten(output.name))}</text>'
    parts = [name, f'<line class="rail" x1="{_LEFT}%" x2="{_RIGHT}%" y1="{y}" y2="{y}"/>']
    error, median, most = (_known(output, n) for n in ("max_abs", "abs_p50", "abs_p999"))
    if error is not None:
        end = axis.place(error)
        if median is not None and most is not None:
            # The upper ends of their bins; the largest error itself is exact.
            start, wide = (axis.place(min(value, error)) for value in (median, most))
            parts.append(f'<line class="tail" x1="{wide:.2f}%" x2="{end:.2f}%" y1="{y}" y2="{y}"/>')
            parts.append(
                f'<rect class="bulk" x="{start:.2f}%" width="{wide - start:.2f}%" y="{y - 4}" '
                f'height="8" rx="4"/>'
            )
    for kind, number, what in (
        ("trained", "noise_floor", "noise floor: the trained model's largest error"),
        ("rounded", "rounding_floor", "what rounding to float16 does"),
        ("candidate", "max_abs", "the candidate's largest error"),
    ):
        value = _known(output, number)
        if value is not None:
            parts.append(mark(kind, axis.place(value), y, f"{what}: {output.shown(number)}"))
    return "".join(parts)


def histogram(identity: str, name: str, errors: Octaves, noise: Octaves | None) -> str:
    """How the candidate's errors are spread, in front of those of the model as trained.

    Args:
        identity: Unique on the page.
        name: Of the output.
        errors: Of the candidate.
        noise: Of the model as trained.
    """
    series = [("trained", noise), ("candidate", errors)]
    shown = [(kind, octaves) for kind, octaves in series if octaves is not None]
    exponents = [e for _, octaves in shown for e, _ in octaves.counts]
    has_zero = any(octaves.zeros for _, octaves in shown)
    first, last = (min(exponents), max(exponents)) if exponents else (0, 0)
    group = math.ceil((last - first + 1) / _MOST_BARS)
    bars = math.ceil((last - first + 1) / group)
    low = (first - 1) * math.log10(2)
    axis = LogAxis(low, low + bars * group * math.log10(2))
    height = _PLOT_PX + _AXIS_PX
    shares = [_shares(octaves, first, group, bars) for _, octaves in shown]
    peak = max(share for found in shares for share in found)
    parts = [_frame(axis, height, has_zero=has_zero)]
    step = (_RIGHT - _LEFT) / bars
    for (kind, _), found in zip(shown, shares):
        # The candidate's bars are narrower, so that those behind stay visible.
        inset = 0.04 if kind == "trained" else 0.22
        for i, share in enumerate(found):
            if share:
                tall = max(2.0, (_PLOT_PX - 8) * share / peak)
                wide = step if i else 2 * (_LEFT - _ZERO - 1.0)
                left = _LEFT + (i - 1) * step if i else _ZERO - wide / 2
                parts.append(
                    f'<rect class="bar {kind}" x="{left + inset * wide:.2f}%" '
                    f'y="{_PLOT_PX - tall:.1f}" width="{(1 - 2 * inset) * wide:.2f}%" '
                    f'height="{tall:.1f}"/>'
                )
    spoken = f"{_spoken(errors)} for the candidate"
    if noise is not None:
        spoken += f"; {_spoken(noise)} for the trained model"
    return _picture(identity, f"Errors of output {name}", spoken, height, "".join(parts))


def _shares(octaves: Octaves, first: int, group: int, bars: int) -> list[float]:
    """Shares of all values: zeros first, then one per bar."""
    counts = [octaves.zeros] + [0] * bars
    for exponent, count in octaves.counts:
        counts[1 + (exponent - first) // group] += count
    total = sum(counts) or 1
    return [count / total for count in counts]


def _spoken(octaves: Octaves) -> str:
    if not octaves.counts:
        return "all errors are 0"
    low, high = octaves.counts[0][0] - 1, octaves.counts[-1][0]
    zeros = f", {octaves.zeros:,} are 0" if octaves.zeros else ""
    return f"errors from {2.0**low:.1g} to {_top(high)}{zeros}"


def _top(exponent: int) -> str:
    return f"{2.0**exponent:.1g}" if exponent < 1024 else "2^1024"
