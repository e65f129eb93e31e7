/** The last hour, or less of it, as lines. */

import { useMemo, useState } from "preact/hooks";
import type { Sample } from "../api";
import { bytes, bytesPerSecond, milliseconds, percent, perSecond, span } from "../format";
import { Chart, type Line } from "../parts/chart";
import { errorRate, hitRatio, operationIn, operationsOf, rateOf, throttledRate } from "../samples";

const MINUTE_MS = 60_000;

const SPANS: [string, number][] = [
  ["5 min", 5 * MINUTE_MS],
  ["15 min", 15 * MINUTE_MS],
  ["1 h", 60 * MINUTE_MS],
];

const REQUEST_LINES: Line[] = [
  { name: "reads", value: (sample) => rateOf(sample, "reads"), colour: 1 },
  { name: "writes", value: (sample) => rateOf(sample, "writes"), colour: 2 },
  { name: "lists", value: (sample) => rateOf(sample, "lists"), colour: 3 },
];
const FAILURE_LINES: Line[] = [
  { name: "errors", value: errorRate, colour: 4 },
  { name: "throttled", value: throttledRate, colour: 2 },
  { name: "uploads", value: (sample) => sample.persistFailures, colour: 5 },
];
const THROUGHPUT_LINES: Line[] = [
  { name: "in", value: (sample) => sample.bytesIn, colour: 2 },
  { name: "out", value: (sample) => sample.bytesOut, colour: 1 },
  { name: "persisted", value: (sample) => sample.persistedBytes, colour: 3 },
];
const HIT_LINES: Line[] = [{ name: "reads from here", value: (sample) => hitRatio(sample.reads), colour: 1 }];
const BACKLOG_LINES: Line[] = [{ name: "dirty", value: (sample) => sample.dirtyBytes, colour: 2 }];
const AGE_LINES: Line[] = [{ name: "oldest write", value: (sample) => sample.oldestDirtyAgeMs, colour: 2 }];
const SPACE_LINES: Line[] = [
  { name: "pinned", value: (sample) => sample.pinnedBytes, colour: 2 },
  { name: "evictable", value: (sample) => sample.evictableBytes, colour: 1 },
  { name: "free", value: (sample) => sample.freeBytes, colour: 6 },
];
const UNDER_STORE_LINES: Line[] = [
  { name: "calls", value: (sample) => sample.underStoreCalls, colour: 1 },
  { name: "errors", value: (sample) => sample.underStoreErrors, colour: 4 },
];

export function Charts({ samples }: { samples: Sample[] }) {
  const [spanMs, setSpanMs] = useState(SPANS[0]?.[1] ?? 0);
  const common = { samples, spanMs };
  return (
    <section aria-labelledby="charts-title">
      <div class="row">
        <h2 id="charts-title">Last</h2>
        <div class="segments" role="group" aria-label="Time shown">
          {SPANS.map(([name, span]) => (
            <button key={name} type="button" aria-pressed={span === spanMs} onClick={() => setSpanMs(span)}>
              {name}
            </button>
          ))}
        </div>
      </div>
      <div class="charts">
        <Chart {...common} title="Requests" lines={REQUEST_LINES} format={perSecond} />
        <Latency {...common} />
        <Chart {...common} title="Throughput" lines={THROUGHPUT_LINES} format={bytesPerSecond} binary />
        <Chart {...common} title="Hit ratio" lines={HIT_LINES} format={percent} top={1} />
        <Chart {...common} title="Backlog" lines={BACKLOG_LINES} format={bytes} binary />
        <Chart {...common} title="Age of the backlog" lines={AGE_LINES} format={span} />
        <Chart {...common} title="Space" lines={SPACE_LINES} format={bytes} binary stack />
        <Chart {...common} title="Under stores" lines={UNDER_STORE_LINES} format={perSecond} />
        <Chart {...common} title="Failures" lines={FAILURE_LINES} format={perSecond} />
      </div>
    </section>
  );
}

/** Percentiles of one operation: those of different operations have no sum. */
function Latency({ samples, spanMs }: { samples: Sample[]; spanMs: number }) {
  const operations = useMemo(() => operationsOf(samples), [samples]);
  const [chosen, setChosen] = useState<string>();
  const operation = chosen ?? operations[0] ?? "";
  const lines = useMemo<Line[]>(
    () => [
      { name: "p50", value: (sample) => operationIn(sample, operation)?.p50Ms, colour: 1 },
      { name: "p90", value: (sample) => operationIn(sample, operation)?.p90Ms, colour: 3 },
      { name: "p99", value: (sample) => operationIn(sample, operation)?.p99Ms, colour: 4 },
    ],
    [operation],
  );
  return (
    <div class="chart-place">
      <Chart title="Time to first byte" of={operation} samples={samples} spanMs={spanMs} lines={lines} format={milliseconds} />
      <select
        class="chart-choice"
        aria-label="Operation"
        value={operation}
        disabled={operations.length === 0}
        onChange={(event) => setChosen(event.currentTarget.value)}
      >
        {operations.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </div>
  );
}
