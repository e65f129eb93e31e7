/** One job: how far it is, what it found, and its end. */

import { useState } from "preact/hooks";
import * as api from "../api";
import type { Job, JobFinding } from "../api";
import { bytes, bytesPerSecond, count, duration } from "../format";
import { Empty, ErrorLine, Facts, Loaded, Table, Time, useNow } from "../parts/basic";
import { Confirm } from "../parts/dialog";
import { tell } from "../parts/toast";
import { useAction, usePoll } from "../poll";
import { hrefOf } from "../route";
import { JobBar, JobState } from "./jobs";

const EVERY_MS = 1000;

const ended = ({ state }: Job) => state !== "queued" && state !== "running";

export function JobPage({ id }: { id: string }) {
  const [over, setOver] = useState(false);
  const job = usePoll(
    id,
    async (signal) => {
      const found = await api.job(id, signal);
      setOver(ended(found));
      return found;
    },
    over ? 0 : EVERY_MS,
  );
  return (
    <>
      <p class="crumbs">
        <a href={hrefOf("jobs")}>All jobs</a>
      </p>
      <h1>Job {id}</h1>
      <Loaded from={job} lines={6}>
        {(found) => (
          <>
            <Head job={found} onChange={job.refresh} />
            <About job={found} />
            <Findings job={found} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Head({ job, onChange }: { job: Job; onChange: () => void }) {
  const [asking, setAsking] = useState(false);
  const cancelling = useAction(async () => {
    const now = await api.cancelJob(job.id);
    tell(now.state === "cancelled" ? `Job ${job.id} is cancelled.` : `Job ${job.id} had ended already: ${now.state}.`);
    setAsking(false);
    onChange();
  });
  return (
    <>
      <div class="row">
        <JobState job={job} />
        <JobBar job={job} />
        {!ended(job) && (
          <button type="button" class="danger" onClick={() => setAsking(true)}>
            Cancel …
          </button>
        )}
      </div>
      {job.error && <p class={ended(job) ? "error" : "hint"}>{job.error}</p>}
      {asking && (
        <Confirm
          title="Cancel this job?"
          action="Cancel the job"
          danger
          busy={cancelling.busy}
          error={cancelling.error}
          onConfirm={cancelling.run}
          onClose={() => setAsking(false)}
        >
          <p>What it has done stays done. It cannot be resumed; a new job starts from the beginning.</p>
        </Confirm>
      )}
    </>
  );
}

function About({ job }: { job: Job }) {
  const { request, progress, startedMs, endedMs } = job;
  const now = useNow(1000);
  const took = startedMs ? Math.max(0, (endedMs ?? now) - startedMs) : undefined;
  return (
    <Facts
      facts={[
        { name: "Kind", value: request.dryRun ? `${request.kind}, dry run` : request.kind },
        { name: "Path", value: <code class="wrap">{request.path}</code> },
        { name: "By", value: job.createdBy },
        { name: "Created", value: <Time ms={job.createdMs} /> },
        { name: "Started", value: <Time ms={startedMs} /> },
        { name: "Ended", value: <Time ms={endedMs} /> },
        { name: "Took", value: duration(took) },
        request.rateLimit ? { name: "Most bytes per second", value: request.rateLimit } : null,
        request.concurrency ? { name: "Objects at once", value: request.concurrency } : null,
        { name: "Objects looked at", value: outOf(progress.objectsSeen, progress.objectsTotal) },
        { name: request.dryRun ? "Would be done" : "Done", value: count(progress.objectsDone) },
        { name: "Left as they are", value: count(progress.objectsSkipped) },
        { name: "Failed", value: count(progress.objectsFailed) },
        { name: "Bytes", value: `${bytes(progress.bytesDone)}${progress.bytesTotal ? ` of ${bytes(progress.bytesTotal)}` : ""}` },
        took && took >= 1000 && !request.dryRun ? { name: "Speed", value: bytesPerSecond((progress.bytesDone * 1000) / took) } : null,
      ]}
    />
  );
}

const outOf = (done: number, all: number | null | undefined) => (all ? `${count(done)} of ${count(all)}` : count(done));

function Findings({ job }: { job: Job }) {
  // Fetched again when the job has found more. The button fetches again what was shown further down.
  const first = usePoll(`${job.id} ${job.findings}`, (signal) => api.findings(job.id, 0, signal), 0);
  return (
    <section aria-labelledby="findings-title">
      <h2 id="findings-title">Findings ({count(job.findings)})</h2>
      {job.findings === 0 ? (
        <Empty>{ended(job) ? "It found nothing." : "None so far."}</Empty>
      ) : (
        <Loaded from={first}>{(rows) => <FindingRows key={job.findings} job={job} first={rows} />}</Loaded>
      )}
    </section>
  );
}

function FindingRows({ job, first }: { job: Job; first: JobFinding[] }) {
  const [more, setMore] = useState<JobFinding[]>([]);
  const [last, setLast] = useState(first.length < api.PAGE_ROWS);
  const rows = [...first, ...more];
  const ofCluster = rows.some((row) => row.worker !== undefined);
  const loading = useAction(async () => {
    const next = await api.findings(job.id, rows.length);
    setMore([...more, ...next]);
    setLast(next.length < api.PAGE_ROWS);
  });
  return (
    <>
      <Table label="Findings" columns={["Path", ...(ofCluster ? ["Worker"] : []), "Kind", "Detail"]}>
        {rows.map((row, at) => (
          <tr key={at}>
            <th scope="row">
              <a href={hrefOf("objects", { object: row.path })}>
                <code>{row.path}</code>
              </a>
            </th>
            {ofCluster && <td class="nowrap">{row.worker}</td>}
            <td class="nowrap">{row.kind}</td>
            <td>{row.detail}</td>
          </tr>
        ))}
      </Table>
      <ErrorLine error={loading.error} />
      {!last && (
        <div class="row">
          <button type="button" onClick={() => loading.run()} disabled={loading.busy}>
            {loading.busy ? "Loading …" : "Show more"}
          </button>
          <span class="hint">
            {count(rows.length)} of {count(job.findings)}
          </span>
        </div>
      )}
    </>
  );
}
