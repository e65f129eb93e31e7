/** The state of the worker at a glance, and the last hour of it. */

import { useRef } from "preact/hooks";
import * as api from "../api";
import type { Notice, Overview, Sample } from "../api";
import { bytes, bytesPerSecond, capital, count, duration, NONE, percent, perSecond, plural } from "../format";
import { Ago, Badge, Facts, Loaded, Prose, Tile, Time, type Tone } from "../parts/basic";
import { Space } from "../parts/space";
import { usePoll } from "../poll";
import { appended, errorRate, hitRatioOf, requestRate, throttledRate, within } from "../samples";
import { Charts } from "./overview-charts";
import { Disks, Operations, Reads } from "./overview-tables";

/** As often as there is a new sample. */
const EVERY_MS = 5000;
const MINUTE_MS = 60_000;

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

const cores = (value: number | undefined) => (value === undefined ? NONE : value.toFixed(2));

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
          { name: "Processors used", value: cores(sample?.cpu) },
        ]}
      />
    </section>
  );
}
