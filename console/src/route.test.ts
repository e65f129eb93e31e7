import assert from "node:assert/strict";
import { test } from "node:test";
import { hrefOf, levelsOf, parseRoute, pathOf } from "./route";

test("any path survives the address", () => {
  for (const path of ["/b/plain", "/b/a b/c", "/b/?x=1&y#z", "/b/100%+1", "/b/ü/日本", "/b/<img src=x>", "/b//"]) {
    assert.deepEqual(parseRoute(hrefOf("objects", { object: path })), { page: "objects", parameters: { object: path } });
  }
});

test("an empty address is the overview", () => {
  for (const hash of ["", "#", "#/"]) assert.equal(parseRoute(hash).page, "overview");
});

test("paths are taken as people write them", () => {
  for (const written of ["s3://b/k", "b/k", "/b/k", " /b/k "]) assert.equal(pathOf(written), "/b/k");
});

test("the levels of a path lead to listings, and its last to itself", () => {
  assert.deepEqual(levelsOf("/b/x/y"), [
    { name: "b", path: "/b/" },
    { name: "x/", path: "/b/x/" },
    { name: "y", path: "/b/x/y" },
  ]);
  assert.deepEqual(levelsOf("/b/x/").at(-1), { name: "x/", path: "/b/x/" });
  assert.deepEqual(levelsOf("/"), []);
});
