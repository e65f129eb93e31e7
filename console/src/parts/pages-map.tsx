import type { CachedRange } from "../api";
import { bytes, count, plural } from "../format";
import { cellsOf, COLUMNS } from "../pages-map";

const CELL = 10;
const GAP = 1.5;

/** Ranges that are listed beside the map; more would be no summary. */
const RANGES_LISTED = 20;

/** Full, partly, not: by colour and by height, so that it does not need colours to be told apart. */
export function PagesMap({ size, pageSize, ranges }: { size: number; pageSize: number; ranges: CachedRange[] }) {
  const { pagesInCell, shares } = cellsOf(size, pageSize, ranges);
  const columns = Math.min(COLUMNS, shares.length);
  const rows = Math.ceil(shares.length / columns);
  const full = shares.filter((share) => share === 1).length;
  const width = columns * CELL;
  return (
    <div class="pages-map">
      <svg
        role="img"
        viewBox={`0 0 ${width} ${rows * CELL}`}
        width={width * 1.2}
        aria-label={`${count(full)} of ${count(shares.length)} parts are wholly on disk`}
      >
        {shares.map((share, cell) => {
          const height = (CELL - GAP) * share;
          const x = (cell % columns) * CELL;
          const y = Math.floor(cell / columns) * CELL;
          return (
            <g key={cell}>
              <rect class="page-absent" x={x} y={y} width={CELL - GAP} height={CELL - GAP} />
              {share > 0 && <rect class="page-present" x={x} y={y + CELL - GAP - height} width={CELL - GAP} height={height} />}
            </g>
          );
        })}
      </svg>
      <p class="hint">
        One cell is {plural(pagesInCell, "page")} ({bytes(pagesInCell * pageSize)}); filled is on disk.
      </p>
      {ranges.length > 0 && (
        <details>
          <summary>{plural(ranges.length, "range")} on disk</summary>
          <ul class="ranges">
            {ranges.slice(0, RANGES_LISTED).map(({ start, end }) => (
              <li key={start}>
                bytes {count(start)} to {count(end - 1)} ({bytes(end - start)})
              </li>
            ))}
            {ranges.length > RANGES_LISTED && <li>and {count(ranges.length - RANGES_LISTED)} more</li>}
          </ul>
        </details>
      )}
    </div>
  );
}
