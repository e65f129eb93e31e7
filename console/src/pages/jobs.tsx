/** What operators ask the cache to do to all objects under a path. */

import { useState } from "preact/hooks";
import * as api from "../api";
import { JOB_KINDS, type Job, type JobKind } from "../api";
import { bytes, count, percent } from "../format";
import { Badge, Empty, ErrorLine, Loaded, Progress, Table, Time, type Tone } from "../parts/basic";
import { tell } from "../parts/toast";
import { useAction, usePoll } from "../poll";
import { goTo, hrefOf, pathOf, route } from "../route";
import { useStore } from "../store";
import { JobPage } from "./job";

const EVERY_MS = 2000;

const KINDS: Record<JobKind, string> = {
  load: "Reads from the under store what the cache does not hold yet.",
  free: "Drops clean copies; the under store keeps the objects.",
  persist: "Brings dirty objects and deletes to the under store now.",
  verify: "Compares cache, catalog and under store; changes nothing.",
  scrub: "Reads all bytes that are here and compares their checksums.",
};
/** Those that read many bytes. */
const LIMITED: JobKind[] = ["load", "scrub"];

export function JobsPage() {
  const { id, path } = useStore(route).parameters;
  return id ? <JobPage key={id} id={id} /> : <Jobs path={path ?? ""} />;
}

function Jobs({ path }: { path: string }) {
  const jobs = usePoll("jobs", api.jobs, EVERY_MS);
  return (
    <>
      <h1>Jobs</h1>
      <NewJob key={path} path={path} />
      <section aria-labelledby="jobs-title">
        <h2 id="jobs-title">All jobs</h2>
        <Loaded from={jobs}>{(all) => (all.length === 0 ? <Empty>No jobs yet.</Empty> : <JobsTable jobs={all} />)}</Loaded>
      </section>
    </>
  );
}

function NewJob({ path }: { path: string }) {
  const [kind, setKind] = useState<JobKind>("load");
  const [written, setWritten] = useState(path);
  const [rateLimit, setRateLimit] = useState("");
  const [concurrency, setConcurrency] = useState("");
  const [dryRun, setDryRun] = useState(false);
  const limited = LIMITED.includes(kind);
  const creating = useAction(async () => {
    const job = await api.createJob({
      kind,
      path: pathOf(written),
      dryRun,
      rateLimit: limited && rateLimit.trim() ? rateLimit.trim() : undefined,
      concurrency: concurrency ? Number(concurrency) : undefined,
    });
    tell(`Job ${job.id} is queued.`);
    goTo("jobs", { id: job.id });
  });
  const submit = (event: Event) => {
    event.preventDefault();
    creating.run();
  };
  return (
    <section aria-labelledby="new-title">
      <h2 id="new-title">New job</h2>
      <form class="panel" onSubmit={submit}>
        <div class="fields">
          <label>
            Kind
            <select value={kind} onChange={(event) => setKind(event.currentTarget.value as JobKind)}>
              {JOB_KINDS.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
          <label class="grow">
            Path
            <input
              class="path"
              required
              placeholder="/bucket/prefix, or / for all"
              spellcheck={false}
              value={written}
              onInput={(event) => setWritten(event.currentTarget.value)}
            />
          </label>
          <label>
            Bytes per second
            <input
              size={12}
              placeholder="no limit"
              title="Such as 100 MiB"
              disabled={!limited}
              value={limited ? rateLimit : ""}
              onInput={(event) => setRateLimit(event.currentTarget.value)}
            />
          </label>
          <label>
            Objects at once
            <input
              type="number"
              min="1"
              max="256"
              placeholder="default"
              value={concurrency}
              onInput={(event) => setConcurrency(event.currentTarget.value)}
            />
          </label>
          <label class="check">
            <input type="checkbox" checked={dryRun} onChange={(event) => setDryRun(event.currentTarget.checked)} /> Dry run
          </label>
          <button type="submit" class="primary" disabled={creating.busy}>
            {dryRun ? "Start dry run" : `Start ${kind}`}
          </button>
        </div>
        <p class="hint">
          {KINDS[kind]} {dryRun && "A dry run counts what would be done, and does nothing."}
        </p>
        <ErrorLine error={creating.error} />
      </form>
    </section>
  );
}

const TONES: Record<string, Tone> = { queued: "plain", running: "busy", done: "good", failed: "bad", cancelled: "warning" };

export const JobState = ({ job }: { job: Job }) => <Badge tone={TONES[job.state] ?? "plain"}>{job.state}</Badge>;

/** How far it has come, when that is known. */
export function JobBar({ job }: { job: Job }) {
  const { objectsSeen, objectsTotal, bytesDone } = job.progress;
  if (objectsTotal && job.state === "running") {
    return (
      <span class="row tight">
        <Progress done={objectsSeen} all={objectsTotal} label={`Progress of job ${job.id}`} />
        <span class="nowrap">{percent(Math.min(objectsSeen / objectsTotal, 1))}</span>
      </span>
    );
  }
  return (
    <span class="nowrap">
      {count(objectsSeen)} seen, {bytes(bytesDone)}
    </span>
  );
}

function JobsTable({ jobs }: { jobs: Job[] }) {
  return (
    <Table label="Jobs" columns={["Job", "State", "Path", "Progress", ">Findings", "Created", "By"]}>
      {jobs.map((job) => (
        <tr key={job.id}>
          <th scope="row" class="nowrap">
            <a href={hrefOf("jobs", { id: job.id })}>
              {job.request.kind} <span class="unseen">job {job.id}</span>
            </a>
            {job.request.dryRun && <span class="hint"> dry run</span>}
          </th>
          <td>
            <JobState job={job} />
          </td>
          <td>
            <code>{job.request.path}</code>
          </td>
          <td>
            <JobBar job={job} />
          </td>
          <td class={`number ${job.findings > 0 ? "warning-text" : ""}`}>{count(job.findings)}</td>
          <td>
            <Time ms={job.createdMs} />
          </td>
          <td>{job.createdBy}</td>
        </tr>
      ))}
    </Table>
  );
}
