import type { CacheState, CacheTier } from "../api";
import { Badge, type Tone } from "./basic";

const STATES: Record<CacheState, { tone: Tone; about: string }> = {
  clean: { tone: "good", about: "The under store has it." },
  dirty: { tone: "busy", about: "It goes to the under store." },
  transient: { tone: "plain", about: "It stays here and never goes to the under store." },
  conflict: { tone: "bad", about: "Somebody else has changed the under store's object while this one was dirty." },
};

export function StateBadge({ state }: { state: CacheState }) {
  const { tone, about } = STATES[state] ?? { tone: "plain", about: "" };
  return (
    <Badge tone={tone} title={about}>
      {state}
    </Badge>
  );
}

export const stateAbout = (state: CacheState): string => STATES[state]?.about ?? "";

const TIERS: Record<CacheTier, string> = { memory: "memory", disk: "disk", under_store: "under store" };

export const tierName = (tier: CacheTier): string => TIERS[tier] ?? tier;
