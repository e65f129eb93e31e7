"""Tables, charts, and the bars that they are held against."""

import dataclasses
import html

UNITS = {
    "p25": ("p25 ms", "{:.0f}"),
    "p50": ("p50 ms", "{:.2f}"),
    "p75": ("p75 ms", "{:.0f}"),
    "p99": ("p99 ms", "{:.2f}"),
    "ready": ("ready after s", "{:.1f}"),
    "normal": ("recovered after s", "{:.0f}"),
    "hits": ("hits %", "{:.1f}"),
    "each": ("KiB of memory per connection", "{:.0f}"),
    "p999": ("p99.9 ms", "{:.2f}"),
    "max": ("longest ms", "{:.1f}"),
    "errors": ("failed", "{:,.0f}"),
    "retried": ("retried", "{:,.0f}"),
    "first": ("first byte p50 ms", "{:.2f}"),
    "rate": ("per second", "{:,.0f}"),
    "bytes": ("MB/s", None),
    "cpu": ("server CPU µs", "{:,.0f}"),
    "memory": ("peak memory MB", None),
    "amplification": ("bytes written per byte", "{:.2f}"),
    "read": ("bytes read per byte", "{:.2f}"),
    "batch": ("commits per transaction", "{:,.1f}"),
    "gets": ("GETs", "{:,.0f}"),
    "heads": ("HEADs", "{:,.0f}"),
    "lists": ("LISTs", "{:,.0f}"),
    "runs": ("runs", "{:,.0f}"),
    "median": ("median s", "{:.1f}"),
    "shortest": ("shortest s", "{:.1f}"),
    "longest": ("longest s", "{:.1f}"),
    "hdfs": ("MB from HDFS", None),
    "disk": ("MB from disk", None),
    "dollars": ("US$ of requests per million queries", "{:,.2f}"),
}


def shown(column, value):
    if value is None:
        return ""
    form = UNITS[column][1]
    return form.format(value) if form else f"{value / 1e6:,.0f}"


@dataclasses.dataclass
class Section:
    """One measurement: a table, what it says of its bars, and a chart of one column when that is worth one."""

    name: str
    title: str
    columns: tuple
    rows: dict
    bars: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)
    chart: str = ""

    def bar(self, text, measured, holds):
        """Says whether a bar holds, with the figures that say so."""
        self.bars.append((text, measured, holds))

    def at_most(self, text, value, limit, unit="x", digits=2):
        self.bar(text, f"{value:,.{digits}f}{unit}", value <= limit)

    def at_least(self, text, value, limit, unit="x", digits=1):
        self.bar(text, f"{value:,.{digits}f}{unit}", value >= limit)

    def markdown(self):
        head = ["", *(UNITS[column][0] for column in self.columns)]
        lines = [f"### {self.title}", ""]
        lines += ["| " + " | ".join(head) + " |", "|---" + "|---:" * len(self.columns) + "|"]
        for name, row in self.rows.items():
            cells = [name, *(shown(column, row.get(column)) for column in self.columns)]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
        if self.chart:
            lines += [f"![{self.title}: {UNITS[self.chart][0]}](images/performance-{self.name}.svg)", ""]
        if self.bars:
            lines += ["| target | measured | |", "|---|---:|---|"]
            lines += [f"| {text} | {measured} | {'met' if holds else '**missed**'} |" for text, measured, holds in self.bars]
            lines.append("")
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"

    def svg(self):
        """Bars of the chart's column; readable on dark and on light pages."""
        values = {name: row[self.chart] for name, row in self.rows.items() if row.get(self.chart)}
        most, height, left, width = max(values.values()), 24, 290, 720
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height * len(values) + 30}" role="img" '
            f'aria-label="{html.escape(self.title)}" font-family="sans-serif" font-size="13">',
            f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="18" fill="#333">{UNITS[self.chart][0]}</text>',
        ]
        for number, (name, value) in enumerate(values.items()):
            y, length = 30 + number * height, max(1, (width - left - 90) * value / most)
            colour = "#0b6e99" if name.startswith("Forebay") else "#9aa5ad"
            lines.append(
                f'<text x="{left - 8}" y="{y + 14}" text-anchor="end" fill="#333">{html.escape(name)}</text>'
                f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="{height - 8}" fill="{colour}"/>'
                f'<text x="{left + length + 6:.1f}" y="{y + 14}" fill="#333">{shown(self.chart, value)}</text>'
            )
        return "\n".join([*lines, "</svg>"]) + "\n"


def write(document, images, name, sections, preface):
    """Replaces the results of the last run, between their marks in the document, by those of this run."""
    begin, end = (f"<!-- written by make bench, {name}: {word} -->" for word in ("begin", "end"))
    before, rest = document.read_text().split(begin)
    after = rest.split(end)[1]
    body = "\n".join(section.markdown() for section in sections)
    document.write_text(f"{before}{begin}\n{body}\n{preface}\n{end}{after}")
    for section in sections:
        if section.chart:
            (images / f"performance-{section.name}.svg").write_text(section.svg())
