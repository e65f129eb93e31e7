/** Rates of counters between two looks at them. */

import type { UnderStoreStatus } from "./api";

export interface Counted {
  timeMs: number;
  stores: UnderStoreStatus[];
}

export interface Rates {
  calls: number;
  errors: number;
  throttled: number;
}

/** Per second, by URL; none for a store that was not there before, or whose counters restarted at 0. */
export function ratesBetween(before: Counted | undefined, now: Counted): Map<string, Rates> {
  const rates = new Map<string, Rates>();
  if (!before || now.timeMs <= before.timeMs) return rates;
  const seconds = (now.timeMs - before.timeMs) / 1000;
  for (const store of now.stores) {
    const earlier = before.stores.find(({ url }) => url === store.url);
    if (!earlier || store.calls < earlier.calls) continue;
    rates.set(store.url, {
      calls: (store.calls - earlier.calls) / seconds,
      errors: (store.errors - earlier.errors) / seconds,
      throttled: (store.throttled - earlier.throttled) / seconds,
    });
  }
  return rates;
}
