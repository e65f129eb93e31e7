/** Which parts of an object are on disk, drawn as cells in rows. */

import type { CachedRange } from "./api";

/** Cells in a row, and rows at most: what can be told apart on a phone. */
export const COLUMNS = 64;
const ROWS_MAX = 16;

export interface Cells {
  /** Pages that one cell stands for. */
  pagesInCell: number;
  /** For each cell the share of it that is on disk. */
  shares: number[];
}

/** Cells of whole pages: one each while they fit, several where they do not. */
export function cellsOf(size: number, pageSize: number, ranges: CachedRange[]): Cells {
  const pages = Math.max(1, Math.ceil(size / pageSize));
  const pagesInCell = Math.ceil(pages / (COLUMNS * ROWS_MAX));
  const cellBytes = pagesInCell * pageSize;
  const cells = Math.ceil(size / cellBytes);
  const cached = new Array<number>(cells).fill(0);
  for (const { start, end } of ranges) {
    for (let cell = Math.floor(start / cellBytes); cell < cells && cell * cellBytes < end; cell += 1) {
      cached[cell] = (cached[cell] ?? 0) + Math.max(0, Math.min(end, (cell + 1) * cellBytes) - Math.max(start, cell * cellBytes));
    }
  }
  const lengthOf = (cell: number) => Math.min(size, (cell + 1) * cellBytes) - cell * cellBytes;
  return { pagesInCell, shares: cached.map((there, cell) => Math.min(1, there / lengthOf(cell))) };
}
