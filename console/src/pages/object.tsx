/** All that is known of one object. */

import { useState } from "preact/hooks";
import * as api from "../api";
import type { ObjectDetail, PersistEvent } from "../api";
import { contentUrl } from "../client";
import { bytes, count, duration, milliseconds, percent, plural } from "../format";
import { Ago, Badge, Empty, Facts, Loaded, Table, Time, type Tone } from "../parts/basic";
import { Confirm } from "../parts/dialog";
import { PagesMap } from "../parts/pages-map";
import { StateBadge, stateAbout, tierName } from "../parts/object-state";
import { tell } from "../parts/toast";
import { useAction, usePoll } from "../poll";
import { goTo, hrefOf } from "../route";
import { Place } from "./objects";

const EVERY_MS = 5000;

export function ObjectPage({ path }: { path: string }) {
  const [deleting, setDeleting] = useState(false);
  const detail = usePoll(path, (signal) => api.objectDetail(path, signal), deleting ? 0 : EVERY_MS);
  return (
    <>
      <h1>Object</h1>
      <Place path={path} />
      <Loaded from={detail} lines={8}>
        {(object) => (
          <>
            <div class="row">
              <a class="button" href={contentUrl(api.contentPath(path))} download={path.slice(path.lastIndexOf("/") + 1)}>
                Download
              </a>
              <button type="button" class="danger" onClick={() => setDeleting(true)}>
                Delete …
              </button>
              <span class="grow" />
              <a href={hrefOf("jobs", { path })}>Jobs for this path</a>
              <a href={hrefOf("policies", { resolve: path })}>Policy here</a>
            </div>
            <About object={object} />
            <Cached object={object} />
            <Pairs title="User metadata" pairs={object.userMetadata} />
            <Pairs title="Tags" pairs={object.tags} />
            <Persistence events={object.persistEvents} />
          </>
        )}
      </Loaded>
      {deleting && <Delete path={path} object={detail.data} onClose={() => setDeleting(false)} />}
    </>
  );
}

function Delete({ path, object, onClose }: { path: string; object: ObjectDetail | undefined; onClose: () => void }) {
  const deleting = useAction(async () => {
    await api.deleteObject(path);
    tell(`${path} is deleted.`);
    goTo("objects", { path: path.slice(0, path.lastIndexOf("/") + 1) });
  });
  return (
    <Confirm title="Delete this object?" action="Delete" danger busy={deleting.busy} error={deleting.error} onConfirm={deleting.run} onClose={onClose}>
      <p>
        <code class="wrap">{path}</code>
        {object && `, ${bytes(object.size)}`}
      </p>
      <p>
        {object?.state === "transient"
          ? "It is nowhere else: it cannot be brought back."
          : "It is deleted in the under store too, at once or in the background, as the policy of the path says. Forebay cannot bring it back."}
      </p>
    </Confirm>
  );
}

function About({ object }: { object: ObjectDetail }) {
  const { nextTryInMs } = object;
  return (
    <Facts
      facts={[
        {
          name: "State",
          value: (
            <>
              <StateBadge state={object.state} /> <span class="hint">{stateAbout(object.state)}</span>
            </>
          ),
        },
        { name: "Size", value: bytes(object.size), title: `${count(object.size)} bytes` },
        { name: "Modified", value: <Time ms={object.lastModifiedMs} /> },
        { name: "Content type", value: object.contentType ?? "not given" },
        { name: "ETag", value: <code class="wrap">{object.etag}</code> },
        object.remoteEtag ? { name: "ETag in the under store", value: <code class="wrap">{object.remoteEtag}</code> } : null,
        object.generation !== null && object.generation !== undefined
          ? { name: "Generation", value: String(object.generation), title: "The number of the write" }
          : null,
        { name: "Copies", value: plural(object.replicas, "worker") },
        object.dirtySinceMs ? { name: "Dirty since", value: <Ago ms={object.dirtySinceMs} /> } : null,
        nextTryInMs !== null && nextTryInMs !== undefined ? { name: "Next try", value: `in ${duration(nextTryInMs)}` } : null,
      ]}
    />
  );
}

function Cached({ object }: { object: ObjectDetail }) {
  const { size, cachedBytes, pageSize, tier } = object;
  return (
    <section aria-labelledby="cached-title">
      <h2 id="cached-title">On disk</h2>
      <p>
        {bytes(cachedBytes)} of {bytes(size)}
        {size > 0 && ` (${percent(Math.min(cachedBytes / size, 1))})`}, in pages of {bytes(pageSize)}. The nearest tier with all of it:{" "}
        {tierName(tier)}.
      </p>
      {size > 0 && <PagesMap size={size} pageSize={pageSize} ranges={object.cachedRanges} />}
    </section>
  );
}

function Pairs({ title, pairs }: { title: string; pairs: Record<string, string> }) {
  const rows = Object.entries(pairs);
  if (rows.length === 0) return null;
  return (
    <section>
      <h2>{title}</h2>
      <Facts facts={rows.map(([name, value]) => ({ name, value }))} />
    </section>
  );
}

const OUTCOMES: Record<string, Tone> = { stored: "good", deleted: "good", conflict: "bad", failed: "bad" };

function Persistence({ events }: { events: PersistEvent[] }) {
  return (
    <section aria-labelledby="persistence-title">
      <h2 id="persistence-title">Persistence</h2>
      {events.length === 0 ? (
        <Empty>None is remembered: since the start, only the last ten thousand of all objects are.</Empty>
      ) : (
        <Table label="Persistence" columns={["Time", "Outcome", ">Generation", ">Bytes", ">Took", "Error"]}>
          {events.map((event) => (
            <tr key={`${event.timeMs} ${event.generation} ${event.outcome}`}>
              <td>
                <Time ms={event.timeMs} />
              </td>
              <td>
                <Badge tone={OUTCOMES[event.outcome] ?? "plain"}>{event.outcome}</Badge>
              </td>
              <td class="number">{event.generation}</td>
              <td class="number">{bytes(event.bytes)}</td>
              <td class="number">{milliseconds(event.durationMs)}</td>
              <td class="wrap">{event.error}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}
