/** What the overview works out from samples. */

import type { OperationSample, ReadSample, Sample } from "./api";

/** Samples that are kept: an hour of 5 s each. */
export const SAMPLES_MAX = 720;

/** Adds what is newer, and lets the oldest go. */
export function appended(kept: Sample[], newer: Sample[]): Sample[] {
  const last = kept.at(-1)?.timeMs ?? 0;
  const fresh = newer.filter((sample) => sample.timeMs > last);
  return fresh.length === 0 ? kept : [...kept, ...fresh].slice(-SAMPLES_MAX);
}

export const within = (samples: Sample[], spanMs: number): Sample[] => {
  const end = samples.at(-1)?.timeMs ?? 0;
  return samples.filter((sample) => sample.timeMs > end - spanMs);
};

const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);

const READS = /^(Get|Head|Select)/;
const LISTS = /^List/;

export type OperationClass = "reads" | "lists" | "writes";

/** Reads, lists, and everything that changes something. */
export function classOf(operation: string): OperationClass {
  if (LISTS.test(operation)) return "lists";
  return READS.test(operation) ? "reads" : "writes";
}

export const rateOf = (sample: Sample, kind: OperationClass): number =>
  sum(sample.operations.filter(({ operation }) => classOf(operation) === kind).map(({ rate }) => rate));

export const requestRate = (sample: Sample): number => sum(sample.operations.map(({ rate }) => rate));
export const errorRate = (sample: Sample): number => sum(sample.operations.map(({ errors }) => errors));
export const throttledRate = (sample: Sample): number => sum(sample.operations.map(({ throttled }) => throttled));

const fromHere = ({ tier }: ReadSample) => tier === "memory" || tier === "disk";

/** The share of reads that memory or disk answered; `null` when nothing was read. */
export function hitRatio(reads: ReadSample[]): number | null {
  const all = sum(reads.map(({ rate }) => rate));
  return all > 0 ? sum(reads.filter(fromHere).map(({ rate }) => rate)) / all : null;
}

/** The hit ratio of several samples together. */
export const hitRatioOf = (samples: Sample[]): number | null => hitRatio(samples.flatMap(({ reads }) => reads));

export interface PathReads {
  path: string;
  memory: number;
  disk: number;
  underStore: number;
  bytes: number;
  hitRatio: number | null;
}

/** Reads by the path of the policy rule, the busiest first. */
export function readsByPath(reads: ReadSample[]): PathReads[] {
  const paths = [...new Set(reads.map(({ path }) => path))];
  const rows = paths.map((path) => {
    const mine = reads.filter((read) => read.path === path);
    const of = (tier: string) => sum(mine.filter((read) => read.tier === tier).map(({ rate }) => rate));
    return {
      path,
      memory: of("memory"),
      disk: of("disk"),
      underStore: of("under_store"),
      bytes: sum(mine.map(({ bytes }) => bytes)),
      hitRatio: hitRatio(mine),
    };
  });
  return rows.sort((a, b) => total(b) - total(a) || a.path.localeCompare(b.path));
}

const total = ({ memory, disk, underStore }: PathReads) => memory + disk + underStore;

/** All operations of the samples, the busiest first. */
export function operationsOf(samples: Sample[]): string[] {
  const rates = new Map<string, number>();
  for (const { operations } of samples) {
    for (const { operation, rate } of operations) rates.set(operation, (rates.get(operation) ?? 0) + rate);
  }
  return [...rates].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([operation]) => operation);
}

export const operationIn = (sample: Sample, operation: string): OperationSample | undefined =>
  sample.operations.find((one) => one.operation === operation);

export interface Summary {
  last: number | null;
  least: number | null;
  mean: number | null;
  most: number | null;
}

/** What a chart shows, in numbers. */
export function summary(values: (number | null)[]): Summary {
  const known = values.filter((value): value is number => value !== null);
  if (known.length === 0) return { last: null, least: null, mean: null, most: null };
  return {
    last: values.at(-1) ?? null,
    least: Math.min(...known),
    mean: sum(known) / known.length,
    most: Math.max(...known),
  };
}

/** What a chart draws: seconds, and for each line its values. Where samples are missing, a hole instead of a line. */
export function columns(samples: Sample[], lines: ((sample: Sample) => number | null | undefined)[]): [number[], ...(number | null)[][]] {
  const times: number[] = [];
  const values: (number | null)[][] = lines.map(() => []);
  samples.forEach((sample, at) => {
    const before = samples[at - 1];
    if (before && sample.timeMs - before.timeMs > HOLE_INTERVALS * sample.intervalMs) {
      times.push((before.timeMs + sample.timeMs) / 2000);
      values.forEach((column) => column.push(null));
    }
    times.push(sample.timeMs / 1000);
    lines.forEach((line, number) => values[number]?.push(line(sample) ?? null));
  });
  return [times, ...values];
}

/** Samples further apart than this many intervals have something missing between them: one may be late, two were lost. */
const HOLE_INTERVALS = 2.5;

/** Each line on top of those before it. */
export function stacked(values: (number | null)[][]): (number | null)[][] {
  const heights: (number | null)[] = [];
  return values.map((column) =>
    column.map((value, at) => {
      heights[at] = value === null ? null : (heights[at] ?? 0) + value;
      return heights[at] ?? null;
    }),
  );
}
