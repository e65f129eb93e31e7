/** What the workers of a cluster say of themselves, taken together. */

import type { ClusterStatus, UnavailableBytes } from "./api";

export interface InAll {
  live: number;
  workers: number;
  dirtyBytes: number;
  dirtyObjects: number;
  pinnedBytes: number;
  pinnedBytesMax: number;
  freeBytes: number;
  capacityBytes: number;
  /** Objects and parts whose bytes homes still have to fetch from other workers. */
  wanted: number;
  /** Of these, those that no worker gives. */
  unavailable: number;
}

/** Sums over the workers that answer. */
export function inAll(cluster: ClusterStatus): InAll {
  const statuses = cluster.workers.flatMap(({ status }) => (status ? [status] : []));
  const sum = (numbers: number[]) => numbers.reduce((all, number) => all + number, 0);
  return {
    live: cluster.workers.filter(({ state }) => state === "live").length,
    workers: cluster.workers.length,
    dirtyBytes: sum(statuses.map(({ dirtyBytes }) => dirtyBytes)),
    dirtyObjects: sum(statuses.map(({ dirtyObjects }) => dirtyObjects)),
    pinnedBytes: sum(statuses.map(({ pinnedBytes }) => pinnedBytes)),
    pinnedBytesMax: sum(statuses.map(({ pinnedBytesMax }) => pinnedBytesMax)),
    freeBytes: sum(statuses.map(({ freeBytes }) => freeBytes)),
    capacityBytes: sum(statuses.map(({ capacityBytes }) => capacityBytes)),
    wanted: sum(statuses.map(({ copiesWanted }) => copiesWanted)),
    unavailable: sum(statuses.map(({ copiesUnavailable }) => copiesUnavailable)),
  };
}

/** What the workers name of the bytes that no worker gives, with the home of each; the oldest first. */
export function unavailableOf(cluster: ClusterStatus): { home: string; found: UnavailableBytes }[] {
  const named = cluster.workers.flatMap(({ id, status }) => (status?.unavailable ?? []).map((found) => ({ home: id, found })));
  return named.sort((one, other) => one.found.sinceMs - other.found.sinceMs);
}
