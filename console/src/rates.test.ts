import assert from "node:assert/strict";
import { test } from "node:test";
import type { UnderStoreStatus } from "./api";
import { ratesBetween } from "./rates";

const store = (url: string, calls: number) => ({ url, calls, errors: 0, throttled: calls / 10 }) as UnderStoreStatus;

test("rates are per second, between two looks", () => {
  const rates = ratesBetween({ timeMs: 0, stores: [store("a", 10)] }, { timeMs: 2000, stores: [store("a", 30), store("b", 5)] });
  assert.deepEqual([...rates], [["a", { calls: 10, errors: 0, throttled: 1 }]]);
});

test("counters that were reset have no rate", () => {
  assert.equal(ratesBetween({ timeMs: 0, stores: [store("a", 10)] }, { timeMs: 2000, stores: [store("a", 3)] }).size, 0);
  assert.equal(ratesBetween(undefined, { timeMs: 2000, stores: [store("a", 3)] }).size, 0);
});
