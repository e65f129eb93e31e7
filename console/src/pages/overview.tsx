/** The state of the worker at a glance, and the last hour of it. */

import { useMemo, useRef, useState } from "preact/hooks";
import * as api from "../api";
import type { Notice, Overview, Sample } from "../api";
import { bytes, bytesPerSecond, capital, count, duration, milliseconds, NONE, percent, perSecond, plural, span } from "../format";
import { Ago, Badge, Empty, Facts, Loaded, Prose, Scroll, Tile, Time, type Tone } from "../parts/basic";
import { Chart, type Line } from "../parts/chart";
import { Space } from "../parts/space";
import { usePoll } from "../poll";
import {
  appended,
  errorRate,
  hitRatio,
  hitRatioOf,
  operationIn,
  operationsOf,
  rateOf,
  readsByPath,
  requestRate,
  throttledRate,
  within,
} from "../samples";

/** As often as there is a new sample. */
const EVERY_MS = 5000;
const MINUTE_MS = 60_000;

const SPANS: [string, number][] = [
  ["5 min", 5 * MINUTE_MS],
  ["15 min", 15 * MINUTE_MS],
  ["1 h", 60 * MINUTE_MS],
];

interface Seen {
  overview: Overview;
  samples: Sample[];
}

/** The state, and the samples that are not here yet. */
function useOverview() {
  const samples = useRef<Sample[]>([]);
  return usePoll<Seen>(
    "overview",
    async (signal) => {
      const since = samples.current.at(-1)?.timeMs;
      const [overview, newer] = await Promise.all([api.overview(signal), api.history(since, signal)]);
      samples.current = appended(samples.current, newer);
      return { overview, samples: samples.current };
    },
    EVERY_MS,
  );
}

export function OverviewPage() {
  const seen = useOverview();
  return (
    <>
      <h1>Overview</h1>
      <Loaded from={seen} lines={8}>
        {({ overview, samples }) => (
          <>
            <Notices notices={overview.notices} />
            <Tiles overview={overview} samples={samples} />
            <section aria-labelledby="space-title">
              <h2 id="space-title">Space</h2>
              <Space status={overview.status} />
            </section>
            <Charts samples={samples} />
            <Operations samples={samples} />
            <Reads samples={samples} />
            <Disks sample={overview.sample ?? samples.at(-1)} failed={overview.status.failedDirectories} />
            <Worker overview={overview} />
          </>
        )}
      </Loaded>
    </>
  );
}

const SEVERITY_TONES: Record<string, Tone> = { info: "plain", warning: "warning", critical: "bad" };

function Notices({ notices }: { notices: Notice[] }) {
  return (
    <section aria-label="Notices" aria-live="polite">
      {notices.length > 0 && (
        <ul class="notices">
          {notices.map((notice) => (
            <li key={`${notice.id} ${notice.subject}`} class={`notice ${notice.severity}`}>
              <Badge tone={SEVERITY_TONES[notice.severity] ?? "plain"}>{notice.severity}</Badge>
              <div>
                <p>
                  <strong>
                    <Prose text={capital(notice.title)} />
                  </strong> {notice.subject && <code>{notice.subject}</code>}
                </p>
                <p class="cure">
                  <Prose text={capital(notice.cure)} />
                </p>
              </div>
              <Ago ms={notice.sinceMs} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Tiles({ overview, samples }: Seen & { samples: Sample[] }) {
  const { status } = overview;
  const sample = overview.sample ?? samples.at(-1);
  const minute = within(samples, MINUTE_MS);
  const failing = sample ? errorRate(sample) : 0;
  const throttled = sample ? throttledRate(sample) : 0;
  return (
    <section class="tiles" aria-label="Now">
      <Tile name="Requests" value={perSecond(sample && requestRate(sample))} more={sample ? plural(sample.connections, "connection") : NONE} />
      <Tile name="From clients" value={bytesPerSecond(sample?.bytesIn)} more={`to clients ${bytesPerSecond(sample?.bytesOut)}`} />
      <Tile name="Reads from here" value={percent(hitRatioOf(minute))} more="in the last minute" />
      <Tile
        name="Errors"
        value={perSecond(sample && failing)}
        more={`throttled ${perSecond(sample && throttled)}`}
        tone={failing > 0 ? "bad" : throttled > 0 ? "warning" : undefined}
      />
      <Tile name="Backlog" value={bytes(status.dirtyBytes)} more={backlogObjects(overview)} />
      <Tile name="Oldest write in it" value={status.dirtyObjects + status.tombstones > 0 ? duration(status.oldestDirtyAgeMs) : "none"} more={drain(overview)} />
      <Tile
        name="Conflicts"
        value={count(status.conflicts)}
        more={status.conflicts > 0 ? "changed elsewhere" : "none"}
        tone={status.conflicts > 0 ? "bad" : undefined}
      />
      <Tile name="Persisted" value={perSecond(sample?.persisted)} more={bytesPerSecond(sample?.persistedBytes)} />
    </section>
  );
}

const backlogObjects = ({ status }: Overview) =>
  status.tombstones > 0
    ? `${plural(status.dirtyObjects, "object")}, ${plural(status.tombstones, "delete")}`
    : plural(status.dirtyObjects, "object");

function drain({ status, drainSeconds }: Overview): string {
  if (status.dirtyObjects + status.tombstones === 0) return "all is persisted";
  return drainSeconds === null || drainSeconds === undefined ? "does not shrink" : `empty in ${duration(drainSeconds * 1000)}`;
}

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

const cores = (value: number | null) => (value === null ? NONE : value.toFixed(2));

function Charts({ samples }: { samples: Sample[] }) {
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

function Operations({ samples }: { samples: Sample[] }) {
  const last = samples.at(-1);
  const rows = (last?.operations ?? []).filter(({ rate }) => rate > 0).sort((a, b) => b.rate - a.rate);
  return (
    <section aria-labelledby="operations-title">
      <h2 id="operations-title">Operations in the last 5 s</h2>
      {rows.length === 0 ? (
        <Empty>No requests.</Empty>
      ) : (
        <Scroll label="Operations">
          <table>
            <thead>
              <tr>
                <th scope="col">Operation</th>
                {["Rate", "Errors", "Throttled", "p25", "p50", "p75", "p90", "p99"].map((name) => (
                  <th key={name} scope="col" class="number">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.operation}>
                  <th scope="row">{row.operation}</th>
                  <td class="number">{perSecond(row.rate)}</td>
                  <td class={`number ${row.errors > 0 ? "bad-text" : ""}`}>{perSecond(row.errors)}</td>
                  <td class={`number ${row.throttled > 0 ? "warning-text" : ""}`}>{perSecond(row.throttled)}</td>
                  {[row.p25Ms, row.p50Ms, row.p75Ms, row.p90Ms, row.p99Ms].map((value, at) => (
                    <td key={at} class="number">
                      {milliseconds(value)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

function Reads({ samples }: { samples: Sample[] }) {
  const rows = readsByPath(samples.at(-1)?.reads ?? []).filter(({ memory, disk, underStore }) => memory + disk + underStore > 0);
  return (
    <section aria-labelledby="reads-title">
      <h2 id="reads-title">Reads in the last 5 s, by policy path</h2>
      {rows.length === 0 ? (
        <Empty>Nothing was read.</Empty>
      ) : (
        <Scroll label="Reads">
          <table>
            <thead>
              <tr>
                <th scope="col">Path</th>
                {["Memory", "Disk", "Under store", "From here", "Bytes"].map((name) => (
                  <th key={name} scope="col" class="number">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.path}>
                  <th scope="row">
                    <code>{row.path}</code>
                  </th>
                  <td class="number">{perSecond(row.memory)}</td>
                  <td class="number">{perSecond(row.disk)}</td>
                  <td class="number">{perSecond(row.underStore)}</td>
                  <td class="number">{percent(row.hitRatio)}</td>
                  <td class="number">{bytesPerSecond(row.bytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

function Disks({ sample, failed }: { sample: Sample | undefined; failed: string[] }) {
  const disks = sample?.disks ?? [];
  return (
    <section aria-labelledby="disks-title">
      <h2 id="disks-title">Cache directories</h2>
      {failed.map((directory) => (
        <p key={directory} class="error">
          Takes no more writes: {directory}
        </p>
      ))}
      {disks.length === 0 ? (
        <Empty>No sample yet.</Empty>
      ) : (
        <Scroll label="Cache directories">
          <table>
            <thead>
              <tr>
                <th scope="col">Directory</th>
                <th scope="col">State</th>
                {["Device busy", "Write and sync", "Written"].map((name) => (
                  <th key={name} scope="col" class="number">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {disks.map((disk) => (
                <tr key={disk.directory}>
                  <th scope="row">
                    <code>{disk.directory}</code>
                  </th>
                  <td>{disk.failed ? <Badge tone="bad">failed</Badge> : <Badge tone="good">writing</Badge>}</td>
                  <td class="number">{percent(disk.busy)}</td>
                  <td class="number">{milliseconds(disk.syncMs)}</td>
                  <td class="number">{bytesPerSecond(disk.writtenBytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

function Worker({ overview }: { overview: Overview }) {
  const sample = overview.sample;
  return (
    <section aria-labelledby="worker-title">
      <h2 id="worker-title">Worker</h2>
      <Facts
        facts={[
          { name: "Version", value: overview.version },
          { name: "Started", value: <Time ms={overview.startedMs} /> },
          { name: "Up", value: duration(overview.nowMs - overview.startedMs) },
          { name: "Resident memory", value: bytes(sample?.residentBytes) },
          { name: "Memory tier", value: bytes(sample?.memoryTierBytes) },
          { name: "Processors used", value: cores(sample?.cpu ?? null) },
        ]}
      />
    </section>
  );
}
