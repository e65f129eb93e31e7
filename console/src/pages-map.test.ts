import assert from "node:assert/strict";
import { test } from "node:test";
import { cellsOf } from "./pages-map";

test("each page has a cell, and the last is as long as its bytes", () => {
  assert.deepEqual(cellsOf(25, 10, [{ start: 0, end: 10 }, { start: 15, end: 25 }]), { pagesInCell: 1, shares: [1, 0.5, 1] });
});

test("many pages share cells, and none is forgotten", () => {
  const size = 10_000;
  const { pagesInCell, shares } = cellsOf(size, 1, [{ start: 0, end: size }]);
  assert.ok(pagesInCell > 1 && shares.length * pagesInCell >= size);
  assert.ok(shares.every((share) => share === 1));
});
