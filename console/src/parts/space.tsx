import type { Status } from "../api";
import { bytes, percent } from "../format";

/** Pinned, evictable, free and other space as parts of the whole: they add up. */
export function Space({ status }: { status: Status }) {
  const { pinnedBytes, evictableBytes, freeBytes, overheadBytes = 0, unavailableBytes = 0, capacityBytes } = status;
  const all = Math.max(capacityBytes, pinnedBytes + evictableBytes + freeBytes + overheadBytes + unavailableBytes, 1);
  const parts = [
    { name: "pinned", bytes: pinnedBytes, colour: 2, about: "not yet in the under store, or meant to stay here" },
    { name: "evictable", bytes: evictableBytes, colour: 1, about: "the under store has it too" },
    { name: "overhead", bytes: overheadBytes, colour: 5, about: "headers, and what was overwritten, deleted or evicted and awaits reclaim" },
    { name: "free", bytes: freeBytes, colour: 6, about: "" },
  ];
  if (unavailableBytes > 0) {
    parts.push({ name: "unavailable", bytes: unavailableBytes, colour: 4, about: "taken on the disks by others than the cache" });
  }
  const label = parts.map((part) => `${part.name} ${bytes(part.bytes)}, ${percent(part.bytes / all)}`).join("; ");
  let start = 0;
  return (
    <div class="space">
      <svg role="img" aria-label={`Of ${bytes(capacityBytes)}: ${label}`} preserveAspectRatio="none" viewBox="0 0 1000 10">
        {parts.map(({ name, bytes: size, colour }) => {
          const x = (start / all) * 1000;
          start += size;
          return <rect key={name} x={x} y="0" width={(size / all) * 1000} height="10" class={`series-${colour}`} />;
        })}
      </svg>
      <ul class="legend" aria-hidden="true">
        {parts.map(({ name, bytes: size, colour, about }) => (
          <li key={name} title={about}>
            <svg width="10" height="10" class={`series-${colour}`}>
              <rect width="10" height="10" rx="2" />
            </svg>
            <span>{name}</span>
            <b>
              {bytes(size)} ({percent(size / all)})
            </b>
          </li>
        ))}
        <li>
          <span>of</span> <b>{bytes(capacityBytes)}</b>
        </li>
      </ul>
    </div>
  );
}
