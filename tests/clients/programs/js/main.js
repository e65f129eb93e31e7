// The AWS SDK for JavaScript as a client of the tests: answers one JSON object a line, as Program in tests/clients/client.py describes.

import { createInterface } from "node:readline";

import * as calls from "./calls.js";

const KINDS = { 403: "denied", 404: "missing", 412: "precondition" };

for await (const line of createInterface({ input: process.stdin })) {
  const { call, ...parameters } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await answer(call, parameters))}\n`);
}

async function answer(call, parameters) {
  try {
    return { result: (await calls[call](parameters)) ?? null };
  } catch (error) {
    const status = error.$metadata?.httpStatusCode;
    return { refused: KINDS[status] ?? String(status ?? "error"), detail: String(error.stack) };
  }
}
