import { Head } from "./basic";
/** Lines over time, with their numbers beside them for eyes and for readers of screens. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Sample } from "../api";
import { clock } from "../format";
import { columns, stacked, summary, within } from "../samples";
import { useStore } from "../store";
import { shownTheme } from "../theme";

export interface Line {
  name: string;
  value: (sample: Sample) => number | null | undefined;
  /** 1 to 6: a colour of the palette in style/theme.css. */
  colour: number;
}

interface ChartProps {
  title: string;
  /** What was chosen for it, where that is not in the title. */
  of?: string;
  samples: Sample[];
  spanMs: number;
  lines: Line[];
  format: (value: number | null) => string;
  /** Sizes have ticks at powers of two. */
  binary?: boolean;
  /** The lines are parts of one whole. */
  stack?: boolean;
  /** Top of the axis, where the values have a natural one. */
  top?: number;
}

const HEIGHT = 150;
const AXIS_FONT = "11px system-ui, sans-serif";
/** Room for the longest label of an axis, such as "1,023 MiB/s". */
const AXIS_WIDTH = 78;

type Data = [number[], ...(number | null)[][]];

export function Chart(props: ChartProps) {
  const { title, samples, spanMs, lines, format, stack } = props;
  const colours = useStore(shownTheme);
  const [at, setAt] = useState<number | null>(null);
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const shown = useMemo(() => within(samples, spanMs), [samples, spanMs]);
  const [times, ...values] = useMemo(() => columns(shown, lines.map(({ value }) => value)), [shown, lines]);
  const drawn: Data = [times, ...(stack ? stacked(values) : values)];
  const names = lines.map(({ name }) => name).join();

  useEffect(() => {
    if (!place.current) return;
    const made = new uPlot(options(props, place.current, setAt), drawn, place.current);
    plot.current = made;
    const follow = new ResizeObserver(([entry]) => entry && made.setSize({ width: entry.contentRect.width, height: HEIGHT }));
    follow.observe(place.current);
    return () => {
      follow.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [colours, names, stack, spanMs]);
  useEffect(() => {
    plot.current?.setData(drawn);
  }, [shown, lines]);

  const pointed = at !== null && times[at] !== undefined ? at : null;
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        <span class="chart-time">{pointed === null ? "" : clock((times[pointed] ?? 0) * 1000)}</span>
      </figcaption>
      <ul class="legend" aria-hidden="true">
        {lines.map(({ name, colour }, number) => (
          <li key={name}>
            <svg width="10" height="10" class={`series-${colour}`}>
              <rect width="10" height="10" rx="2" />
            </svg>
            <span>{name}</span>
            <b>{format((pointed === null ? values[number]?.at(-1) : values[number]?.[pointed]) ?? null)}</b>
          </li>
        ))}
      </ul>
      <div ref={place} class="plot" role="img" aria-label={spoken(props.of ? `${title}, ${props.of}` : title, lines, values, format)} />
      {shown.length === 0 && <p class="chart-empty">The first sample comes within five seconds.</p>}
      <details>
        <summary>
          Numbers<span class="unseen"> of {title}</span>
        </summary>
        <Numbers title={title} lines={lines} values={values} format={format} />
      </details>
    </figure>
  );
}

function spoken(title: string, lines: Line[], values: (number | null)[][], format: ChartProps["format"]): string {
  const parts = lines.map(({ name }, number) => {
    const { last, least, most } = summary(values[number] ?? []);
    return `${name} now ${format(last)}, between ${format(least)} and ${format(most)}`;
  });
  return `${title}. ${parts.join("; ")}.`;
}

interface NumbersProps {
  title: string;
  lines: Line[];
  values: (number | null)[][];
  format: ChartProps["format"];
}

function Numbers({ title, lines, values, format }: NumbersProps) {
  return (
    <table class="compact">
      <caption class="unseen">{title}</caption>
      <Head columns={["Line", ">Now", ">Least", ">Mean", ">Most"]} />
      <tbody>
        {lines.map(({ name }, number) => {
          const { last, least, mean, most } = summary(values[number] ?? []);
          return (
            <tr key={name}>
              <th scope="row">{name}</th>
              {[last, least, mean, most].map((value, column) => (
                <td key={column} class="number">
                  {format(value)}
                </td>
              ))}
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

function options(props: ChartProps, place: HTMLElement, point: (at: number | null) => void): uPlot.Options {
  const { lines, format, binary, stack, top, spanMs } = props;
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--muted"), font: AXIS_FONT, grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
  return {
    width: place.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "samples", setSeries: false }, drag: { x: false, y: false }, points: { size: 6 }, y: false },
    padding: [8, 8, 0, 0],
    scales: {
      x: { range: (_, __, end) => [end - spanMs / 1000, end] },
      y: { range: (_, __, most) => [0, top ?? headroom(most)] },
    },
    axes: [
      { ...axis, size: 26, space: 40, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000).slice(0, 5)) },
      { ...axis, size: AXIS_WIDTH, space: 28, ...(binary ? { incrs: BINARY_STEPS } : {}), values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [{}, ...lines.map((line) => lineOptions(line, colour(`--series-${line.colour}`), stack))],
    bands: stack ? lines.slice(1).map((_, at) => ({ series: [at + 2, at + 1] as [number, number] })) : [],
    hooks: { setCursor: [(plot) => point(plot.cursor.idx ?? null)] },
  };
}

function lineOptions({ name }: Line, colour: string, stack: boolean | undefined): uPlot.Series {
  return { label: name, stroke: colour, width: 1.5, points: { show: false }, spanGaps: false, ...(stack ? { fill: `${colour}66` } : {}) };
}

/** An axis that does not end at its highest point, nor at nothing. */
function headroom(most: number | null): number {
  return most && most > 0 ? most * 1.1 : 1;
}
