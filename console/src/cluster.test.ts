import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterStatus, Status } from "./api";
import { inAll, unavailableOf } from "./cluster";

const status = (dirtyBytes: number, since: number[]): Status =>
  ({
    dirtyBytes,
    dirtyObjects: 1,
    pinnedBytes: 50,
    pinnedBytesMax: 80,
    freeBytes: 30,
    capacityBytes: 100,
    copiesWanted: 20,
    copiesUnavailable: since.length,
    unavailable: since.map((sinceMs) => ({ path: `/b/${sinceMs}`, sinceMs, problem: "worker w3 does not run" })),
  }) as unknown as Status;

const cluster: ClusterStatus = {
  name: "lake",
  worker: "w1",
  slots: 1024,
  ageMs: 0,
  slotsWithoutHome: 0,
  workers: [
    { id: "w1", state: "live", slots: 512, status: status(5, [30, 10]) },
    { id: "w2", state: "draining", slots: 512, status: status(7, [20]) },
    { id: "w3", state: "lost", slots: 0, status: null },
  ],
  engine: [],
};

test("what the workers say adds up, and those that say nothing add nothing", () => {
  assert.deepEqual(inAll(cluster), {
    live: 1,
    workers: 3,
    dirtyBytes: 12,
    dirtyObjects: 2,
    pinnedBytes: 100,
    pinnedBytesMax: 160,
    freeBytes: 60,
    capacityBytes: 200,
    wanted: 40,
    unavailable: 3,
  });
});

test("what no worker gives is named with its home, the oldest first", () => {
  const named = unavailableOf(cluster).map(({ home, found }) => `${home} ${found.path}`);
  assert.deepEqual(named, ["w1 /b/10", "w2 /b/20", "w1 /b/30"]);
  assert.deepEqual(unavailableOf({ ...cluster, workers: [] }), []);
});
