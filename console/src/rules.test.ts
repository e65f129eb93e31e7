import assert from "node:assert/strict";
import { test } from "node:test";
import { read, settingsOf, unquoted } from "./rules";

const problem = (text: string) => {
  const found = read(text);
  assert.ok("problem" in found, "it was taken");
  return found.problem;
};

test("rules are read as they are", () => {
  assert.deepEqual(read('[{"path": "/b/", "cacheReads": false}]'), { rules: [{ path: "/b/", cacheReads: false }] });
});

test("a problem names its place", () => {
  assert.match(problem('[\n  {"path": "/b/",}\n]'), /line 2/);
  assert.match(problem('{"path": "/"}'), /list of rules/);
  assert.match(problem('[{"path": "/"}, {"writeMode": "TRANSIENT"}]'), /Rule 2 has no path/);
});

test("settings are shown as rules write them", () => {
  assert.deepEqual(settingsOf({ path: "/", writeMode: "WRITE_BACK", cacheReads: false, writeReplicas: 1, cacheQuota: null }), [
    ["writeMode", "WRITE_BACK"],
    ["cacheReads", "false"],
    ["writeReplicas", "1"],
  ]);
  assert.deepEqual(settingsOf({ path: "/", writeBackMaxSize: "8 MiB", readCacheMaxSize: "1 GiB" }), [
    ["writeBackMaxSize", "8 MiB"],
    ["readCacheMaxSize", "1 GiB"],
  ]);
  assert.equal(unquoted('"5 min"'), "5 min");
  assert.equal(unquoted("WRITE_BACK"), "WRITE_BACK");
  assert.equal(unquoted("null"), undefined);
  assert.equal(unquoted(null), undefined);
});
