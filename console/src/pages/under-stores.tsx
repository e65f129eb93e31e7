/** What is behind the cache, and how it answers. */

import { useRef } from "preact/hooks";
import * as api from "../api";
import type { UnderStoreStatus } from "../api";
import { bytesPerSecond, count, duration, percent, perSecond } from "../format";
import { Ago, Badge, Empty, Facts, Loaded, type Tone } from "../parts/basic";
import { usePoll } from "../poll";
import { ratesBetween, type Counted, type Rates } from "../rates";

const EVERY_MS = 2000;

interface Seen {
  stores: UnderStoreStatus[];
  rates: Map<string, Rates>;
}

/** The states, with rates between this answer and the last. */
function useUnderStores() {
  const before = useRef<Counted | undefined>(undefined);
  return usePoll<Seen>(
    "under-stores",
    async (signal) => {
      const stores = await api.underStores(signal);
      const now: Counted = { timeMs: performance.now(), stores };
      const rates = ratesBetween(before.current, now);
      before.current = now;
      return { stores, rates };
    },
    EVERY_MS,
  );
}

export function UnderStores() {
  const seen = useUnderStores();
  return (
    <>
      <h1>Under stores</h1>
      <Loaded from={seen} lines={6}>
        {({ stores, rates }) =>
          stores.length === 0 ? (
            <Empty>No under store is configured.</Empty>
          ) : (
            <>
              {stores.map((store, at) => (
                <UnderStore key={`${store.url} ${at}`} store={store} rates={rates.get(store.url)} />
              ))}
            </>
          )
        }
      </Loaded>
    </>
  );
}

const CIRCUITS: Record<string, { tone: Tone; name: string; about: string }> = {
  closed: { tone: "good", name: "requests go through", about: "The circuit is closed." },
  open: { tone: "bad", name: "backing off", about: "The circuit is open: requests wait for the next probe." },
  probing: { tone: "warning", name: "probing", about: "A probe is in flight." },
};

const UNUSABLE = { tone: "bad" as Tone, name: "cannot be used", about: "The last probe failed; the next follows within 15 seconds." };

function UnderStore({ store, rates }: { store: UnderStoreStatus; rates: Rates | undefined }) {
  const isUnusable = store.circuit === "closed" && Boolean(store.problem);
  const circuit = isUnusable ? UNUSABLE : CIRCUITS[store.circuit] ?? { tone: "plain", name: store.circuit, about: "" };
  const throttling = store.concurrencyLimit < store.concurrencyMax;
  return (
    <section class="panel">
      <div class="row">
        <h2>
          <code class="wrap">{store.url}</code>
        </h2>
        <Badge tone={circuit.tone} title={circuit.about}>
          {circuit.name}
        </Badge>
        {throttling && (
          <Badge tone="warning" title="After throttling or errors, fewer background requests run at once; the number grows again with each success.">
            slowed down
          </Badge>
        )}
      </div>
      <Facts
        facts={[
          { name: "Buckets", value: store.buckets.length > 0 ? store.buckets.join(", ") : "all that are mounted nowhere else" },
          store.probeInMs !== null && store.probeInMs !== undefined ? { name: "Next probe", value: `in ${duration(store.probeInMs)}` } : null,
          { name: "Failures in a row", value: count(store.failuresInARow) },
          {
            name: "Background requests",
            value: `${count(store.running)} running, ${count(store.concurrencyLimit)} allowed now, ${count(store.concurrencyMax)} at most`,
          },
          { name: "Calls now", value: perSecond(rates?.calls) },
          { name: "Errors now", value: perSecond(rates?.errors) },
          { name: "Throttled now", value: perSecond(rates?.throttled) },
          { name: "Calls since the start", value: count(store.calls) },
          { name: "Errors since the start", value: withShare(store.errors, store.calls) },
          { name: "Throttled since the start", value: withShare(store.throttled, store.calls) },
          { name: "Most requests per second", value: store.requestsPerSecondMax === 0 ? "no limit" : perSecond(store.requestsPerSecondMax) },
          { name: "Most upload bandwidth", value: store.uploadBandwidthMax === 0 ? "no limit" : bytesPerSecond(store.uploadBandwidthMax) },
        ]}
      />
      {store.problem && <p class="error wrap">{store.problem}</p>}
      {store.lastError && (
        <p class={store.circuit === "closed" ? "hint" : "error"}>
          Last error, <Ago ms={store.lastErrorMs} />: <span class="wrap">{store.lastError}</span>
        </p>
      )}
    </section>
  );
}

const withShare = (part: number, all: number) => (all > 0 && part > 0 ? `${count(part)} (${percent(part / all)})` : count(part));
