import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, count, duration, milliseconds, NONE, percent, perSecond, plural, short, utcTime } from "./format";

function check<T>(format: (value: T) => string, table: [T, string][]) {
  for (const [value, text] of table) assert.equal(format(value), text, `of ${value}`);
}

test("sizes have three digits that count, and a unit that people know", () => {
  check(bytes, [
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1 KiB"],
    [1536, "1.5 KiB"],
    [2 ** 20 - 1, "1 MiB"],
    [123.4 * 2 ** 20, "123 MiB"],
    [12.34 * 2 ** 30, "12.3 GiB"],
    [2 ** 53, "8 PiB"],
  ]);
});

test("what is not known is not shown as nothing", () => {
  for (const format of [bytes, count, duration, milliseconds, percent, perSecond, short]) {
    assert.equal(format(undefined), NONE);
    assert.equal(format(null), NONE);
    assert.equal(format(Number.NaN), NONE);
  }
});

test("a hundred percent is all, and nothing percent is nothing", () => {
  check(percent, [
    [0, "0 %"],
    [0.0001, "< 0.1 %"],
    [0.123, "12.3 %"],
    [0.9999, "99.9 %"],
    [1, "100 %"],
  ]);
});

test("durations have their two largest units", () => {
  check(duration, [
    [0, "0 s"],
    [400, "< 1 s"],
    [59_999, "59 s"],
    [60_000, "1 min"],
    [61_000, "1 min 1 s"],
    [3 * 3_600_000 + 20 * 60_000 + 5000, "3 h 20 min"],
    [86_400_000 * 9, "9 d"],
  ]);
});

test("latencies are read at a glance", () => {
  check(milliseconds, [
    [0.123, "0.12 ms"],
    [12.34, "12.3 ms"],
    [999, "999 ms"],
    [1500, "1.5 s"],
    [65_000, "1 min 5 s"],
  ]);
});

test("rates and counts", () => {
  check(perSecond, [
    [0, "0/s"],
    [0.25, "0.25/s"],
    [1234, "1,234/s"],
    [12_345, "12.3 k/s"],
    [2_500_000, "2.5 M/s"],
  ]);
  assert.equal(count(1_234_567), "1,234,567");
  assert.equal(plural(1, "object"), "1 object");
  assert.equal(plural(2, "prefix", "prefixes"), "2 prefixes");
});

test("UTC is shown beside local time", () => {
  assert.equal(utcTime(Date.UTC(2026, 2, 1, 14, 5, 9)), "2026-03-01 14:05:09 UTC");
});
