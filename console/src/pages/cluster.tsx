/** All workers of the cluster, as the one that is asked sees them. */

import * as api from "../api";
import type { ClusterStatus, ClusterWorker, EngineMember } from "../api";
import { inAll, unavailableOf } from "../cluster";
import { bytes, count, duration, NONE, percent, plural } from "../format";
import { Ago, Badge, Empty, Loaded, Table, Tile, type Tone } from "../parts/basic";
import { usePoll } from "../poll";

const EVERY_MS = 3000;

/** Older is what is shown while the engine does not answer: a worker looks twice a second. */
const CURRENT_MS = 5000;

export function ClusterPage() {
  const seen = usePoll("cluster", api.cluster, EVERY_MS);
  return (
    <>
      <h1>Cluster</h1>
      <Loaded from={seen} lines={6}>
        {(cluster) => (
          <>
            <p class="hint">
              {cluster.name}, as worker {cluster.worker}{" "}
              {cluster.ageMs > CURRENT_MS ? `saw it ${duration(cluster.ageMs)} ago: the engine has not answered it since` : "sees it"}.
            </p>
            <Tiles cluster={cluster} />
            <Workers workers={cluster.workers} />
            <Engine members={cluster.engine} />
            <Unavailable cluster={cluster} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Tiles({ cluster }: { cluster: ClusterStatus }) {
  const { live, workers, dirtyBytes, dirtyObjects, pinnedBytes, pinnedBytesMax, freeBytes, capacityBytes, wanted, unavailable } = inAll(cluster);
  const homeless = cluster.slotsWithoutHome;
  const members = cluster.engine.length;
  const answering = cluster.engine.filter(({ problem }) => !problem).length;
  return (
    <section class="tiles" aria-label="All workers">
      <Tile name="Workers" value={count(live)} more={live < workers ? `live, of ${count(workers)}` : "all live"} tone={live < workers ? "warning" : undefined} />
      <Tile
        name="Slots"
        value={count(cluster.slots)}
        more={homeless > 0 ? `${count(homeless)} without a home` : "all have a home"}
        tone={homeless > 0 ? "bad" : undefined}
      />
      <Tile name="Backlog" value={bytes(dirtyBytes)} more={plural(dirtyObjects, "object")} />
      <Tile name="Pinned" value={pinnedBytesMax > 0 ? percent(pinnedBytes / pinnedBytesMax) : NONE} more={`of ${bytes(pinnedBytesMax)}`} />
      <Tile name="Free" value={bytes(freeBytes)} more={`of ${bytes(capacityBytes)}`} />
      <Tile name="Bytes elsewhere" value={count(wanted)} more={wanted > unavailable ? `${count(wanted - unavailable)} on their way` : "none on the way"} />
      <Tile
        name="Unavailable"
        value={count(unavailable)}
        more={unavailable > 0 ? "get 503" : "none"}
        tone={unavailable > 0 ? "bad" : undefined}
      />
      <Tile
        name="Engine"
        value={answering === members ? "well" : `${count(answering)} of ${count(members)}`}
        more={answering === members ? plural(members, "member") : "members are well"}
        tone={answering < members ? "bad" : undefined}
      />
    </section>
  );
}

const STATES: Record<string, { tone: Tone; about: string }> = {
  live: { tone: "good", about: "It answers for its slots." },
  draining: { tone: "busy", about: "It gives its slots to others, and stops when nobody needs its bytes." },
  drained: { tone: "busy", about: "Nobody needs its bytes any more: it is about to stop." },
  left: { tone: "warning", about: "It has stopped." },
  lost: { tone: "bad", about: "It was silent for too long, and others have taken its place." },
};

function Workers({ workers }: { workers: ClusterWorker[] }) {
  return (
    <section aria-labelledby="workers-title">
      <h2 id="workers-title">Workers</h2>
      <Table label="Workers" columns={["Worker", "State", ">Slots", ">Backlog", ">Pinned", ">Free", ">Bytes elsewhere", ">Unavailable", "S3", "Version"]}>
        {workers.map((worker) => (
          <Worker key={worker.id} worker={worker} />
        ))}
      </Table>
    </section>
  );
}

function Worker({ worker }: { worker: ClusterWorker }) {
  const { status } = worker;
  const state = STATES[worker.state] ?? { tone: "plain" as Tone, about: "" };
  const pinned = status && status.pinnedBytesMax > 0 ? percent(status.pinnedBytes / status.pinnedBytesMax) : NONE;
  const unavailable = status?.copiesUnavailable ?? 0;
  return (
    <tr>
      <th scope="row">{worker.id}</th>
      <td>
        <Badge tone={state.tone} title={state.about}>
          {worker.state}
        </Badge>
        {worker.problem && <div class="bad-text wrap">{worker.problem}</div>}
      </td>
      <td class="number">{count(worker.slots)}</td>
      <td class="number">{bytes(status?.dirtyBytes)}</td>
      <td class="number" title="Of what may be pinned there">
        {pinned}
      </td>
      <td class="number">{bytes(status?.freeBytes)}</td>
      <td class="number">{count(status?.copiesWanted)}</td>
      <td class={`number ${unavailable > 0 ? "bad-text" : ""}`}>{count(status?.copiesUnavailable)}</td>
      <td class="nowrap">{worker.s3Address ?? NONE}</td>
      <td>{worker.version ?? NONE}</td>
    </tr>
  );
}

function Engine({ members }: { members: EngineMember[] }) {
  return (
    <section aria-labelledby="engine-title">
      <h2 id="engine-title">Engine</h2>
      <Table label="Engine" columns={["Member", "State", ">Database", ">Of its quota", "Version"]}>
        {members.map((member) => (
          <tr key={member.endpoint}>
            <th scope="row">
              <code>{member.endpoint}</code>
            </th>
            <td>
              {member.problem ? <Badge tone="bad">in trouble</Badge> : <Badge tone="good">answers</Badge>}
              {member.problem && <div class="bad-text wrap">{member.problem}</div>}
            </td>
            <td class="number">{bytes(member.databaseBytes)}</td>
            <td class="number">{member.databaseBytes && member.quotaBytes ? percent(member.databaseBytes / member.quotaBytes) : NONE}</td>
            <td>{member.version ?? NONE}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function Unavailable({ cluster }: { cluster: ClusterStatus }) {
  const named = unavailableOf(cluster);
  const { unavailable } = inAll(cluster);
  return (
    <section aria-labelledby="unavailable-title">
      <h2 id="unavailable-title">Unavailable objects</h2>
      {named.length === 0 ? (
        <Empty>The bytes of all objects are at workers that answer.</Empty>
      ) : (
        <>
          <p class="hint">Requests for them get 503 until a worker that has their bytes is back, or they are written again or deleted.</p>
          <Table label="Unavailable objects" columns={["Object", "Home", "Since", "Because"]}>
            {named.map(({ home, found }) => (
              <tr key={`${home} ${found.path} ${found.sinceMs}`}>
                <th scope="row">
                  <code class="wrap">{found.path}</code>
                </th>
                <td>{home}</td>
                <td>
                  <Ago ms={found.sinceMs} />
                </td>
                <td class="wrap">{found.problem}</td>
              </tr>
            ))}
          </Table>
          {unavailable > named.length && <p class="hint">{plural(unavailable - named.length, "other")} not shown.</p>}
        </>
      )}
    </section>
  );
}
