import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sample } from "./api";
import { appended, classOf, columns, hitRatio, readsByPath, SAMPLES_MAX, stacked, summary, within } from "./samples";

const sample = (timeMs: number, more: Partial<Sample> = {}) => ({ timeMs, intervalMs: 5000, operations: [], reads: [], ...more }) as unknown as Sample;
const read = (path: string, tier: string, rate: number) => ({ path, bucket: "b", tier, rate, bytes: rate });

test("a sample is kept once, and the oldest goes", () => {
  const kept = appended([sample(1), sample(2)], [sample(2), sample(3)]);
  assert.deepEqual(
    kept.map(({ timeMs }) => timeMs),
    [1, 2, 3],
  );
  const many = Array.from({ length: SAMPLES_MAX + 5 }, (_, at) => sample(at + 1));
  assert.equal(appended([], many).length, SAMPLES_MAX);
  assert.equal(appended([], many).at(-1)?.timeMs, SAMPLES_MAX + 5);
});

test("a span ends at the last sample, not now", () => {
  assert.equal(within([sample(1000), sample(6000), sample(11_000)], 10_000).length, 2);
});

test("where samples are missing there is a hole", () => {
  const [times, values] = columns([sample(0, { cpu: 1 }), sample(5000, { cpu: 2 }), sample(60_000, { cpu: 3 })], [({ cpu }) => cpu]);
  assert.deepEqual(times, [0, 5, 32.5, 60]);
  assert.deepEqual(values, [1, 2, null, 3]);
});

test("parts are drawn on top of each other", () => {
  assert.deepEqual(stacked([[1, 2], [10, null], [100, 100]]), [[1, 2], [11, null], [111, 100]]);
});

test("the hit ratio counts what came from here, and is none without reads", () => {
  assert.equal(hitRatio([]), null);
  assert.equal(hitRatio([read("/", "memory", 1), read("/", "disk", 2), read("/", "under_store", 1)]), 0.75);
});

test("reads are summed by path, the busiest first", () => {
  const rows = readsByPath([read("/a", "memory", 1), read("/b", "under_store", 5), read("/a", "disk", 2)]);
  assert.deepEqual(
    rows.map(({ path, hitRatio: ratio }) => [path, ratio]),
    [
      ["/b", 0],
      ["/a", 1],
    ],
  );
});

test("operations are reads, lists or writes", () => {
  const table = { GetObject: "reads", HeadObject: "reads", ListObjectsV2: "lists", PutObject: "writes", DeleteObjects: "writes" };
  for (const [operation, kind] of Object.entries(table)) assert.equal(classOf(operation), kind, operation);
});

test("a summary leaves out what is not known", () => {
  assert.deepEqual(summary([null, 2, 4]), { last: 4, least: 2, mean: 3, most: 4 });
  assert.deepEqual(summary([2, null]).last, null);
});
