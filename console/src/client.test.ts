import assert from "node:assert/strict";
import { test } from "node:test";
import { exact, problemText } from "./client";

test("generations keep all their digits, and nothing else changes", () => {
  const body = JSON.stringify({ note: '"generation": 117655312530276371' });
  const text = `{"generation":117655312530276371,"events":[{"generation": 7}],"metadata":${body}}`;
  const read = JSON.parse(exact(text));
  assert.equal(read.generation, "117655312530276371");
  assert.equal(read.events[0].generation, 7);
  assert.deepEqual(read.metadata, JSON.parse(body));
});

test("a problem is shown in the server's words, as a sentence", () => {
  assert.equal(problemText(404, '{"title":"Not Found","status":404,"detail":"there is no job 7"}'), "There is no job 7.");
  assert.equal(problemText(502, "<html>bad gateway</html>"), "The server answered with status 502.");
});
