/** The words of the admin API, as the server has them, and its calls. */

import { call, listOf, type Answer } from "./client";

export type Severity = "info" | "warning" | "critical";

export interface Notice {
  id: string;
  severity: Severity;
  subject: string;
  title: string;
  cure: string;
  sinceMs: number;
}

export interface Status {
  dirtyObjects: number;
  dirtyBytes: number;
  tombstones: number;
  oldestDirtyAgeMs: number;
  conflicts: number;
  copiesWanted: number;
  copiesUnavailable: number;
  unavailable: UnavailableBytes[];
  pinnedBytes: number;
  evictableBytes: number;
  freeBytes: number;
  unavailableBytes: number;
  overheadBytes: number;
  pinnedBytesMax: number;
  capacityBytes: number;
  failedDirectories: string[];
}

export interface OperationSample {
  operation: string;
  rate: number;
  errors: number;
  throttled: number;
  p25Ms?: number | null;
  p50Ms?: number | null;
  p75Ms?: number | null;
  p90Ms?: number | null;
  p99Ms?: number | null;
}

export interface ReadSample {
  path: string;
  bucket: string;
  tier: string;
  rate: number;
  bytes: number;
}

export interface DiskSample {
  directory: string;
  busy?: number | null;
  syncMs?: number | null;
  writtenBytes: number;
  failed: boolean;
}

/** One interval; rates are per second. */
export interface Sample {
  timeMs: number;
  intervalMs: number;
  operations: OperationSample[];
  bytesIn: number;
  bytesOut: number;
  reads: ReadSample[];
  dirtyObjects: number;
  dirtyBytes: number;
  oldestDirtyAgeMs: number;
  persisted: number;
  persistedBytes: number;
  persistFailures: number;
  pinnedBytes: number;
  evictableBytes: number;
  freeBytes: number;
  capacityBytes: number;
  memoryTierBytes: number;
  disks: DiskSample[];
  underStoreCalls: number;
  underStoreErrors: number;
  cpu: number;
  residentBytes: number;
  connections: number;
}

export interface Overview {
  version: string;
  startedMs: number;
  nowMs: number;
  status: Status;
  notices: Notice[];
  sample?: Sample | null;
  drainSeconds?: number | null;
}

export interface UnderStoreStatus {
  url: string;
  buckets: string[];
  circuit: "closed" | "open" | "probing";
  probeInMs?: number | null;
  failuresInARow: number;
  concurrencyLimit: number;
  concurrencyMax: number;
  running: number;
  calls: number;
  errors: number;
  throttled: number;
  lastError?: string | null;
  lastErrorMs?: number | null;
  /** Why it can't be used, as the last probe found it. */
  problem?: string | null;
  requestsPerSecondMax: number;
  uploadBandwidthMax: number;
}

/** What no worker of the cluster gives. */
export interface UnavailableBytes {
  path: string;
  sinceMs: number;
  problem: string;
}

export interface ClusterWorker {
  id: string;
  state: "live" | "draining" | "drained" | "left" | "lost";
  slots: number;
  s3Address?: string | null;
  version?: string | null;
  /** What it says of itself; absent when it does not answer. */
  status?: Status | null;
  problem?: string | null;
}

export interface EngineMember {
  endpoint: string;
  version?: string | null;
  databaseBytes?: number | null;
  quotaBytes?: number | null;
  problem?: string | null;
}

export interface ClusterStatus {
  name: string;
  /** The worker that is asked. */
  worker: string;
  slots: number;
  ageMs: number;
  slotsWithoutHome: number;
  workers: ClusterWorker[];
  engine: EngineMember[];
}

export interface Bucket {
  name: string;
  createdMs?: number | null;
}

export type CacheState = "clean" | "dirty" | "transient" | "conflict";
export type CacheTier = "memory" | "disk" | "under_store";

export interface CachedObject {
  key: string;
  size: number;
  etag: string;
  lastModifiedMs: number;
  state: CacheState;
  tier: CacheTier;
  cachedBytes: number;
}

export interface CachedPage {
  objects: CachedObject[];
  prefixes: string[];
  next?: string | null;
}

export interface CachedRange {
  start: number;
  end: number;
}

/** The number of a write; text where it is too long for a number. */
export type Generation = number | string;

export interface PersistEvent {
  timeMs: number;
  outcome: string;
  generation: Generation;
  bytes: number;
  durationMs: number;
  error?: string | null;
}

export interface ObjectDetail {
  path: string;
  size: number;
  etag: string;
  contentType?: string | null;
  lastModifiedMs: number;
  state: CacheState;
  tier: CacheTier;
  cachedBytes: number;
  cachedRanges: CachedRange[];
  pageSize: number;
  replicas: number;
  generation?: Generation | null;
  remoteEtag?: string | null;
  dirtySinceMs?: number | null;
  nextTryInMs?: number | null;
  userMetadata: Record<string, string>;
  tags: Record<string, string>;
  persistEvents: PersistEvent[];
}

/** A rule as operators write it; settings beside `path` come and go with versions of the server. */
export type PolicyRule = { path: string } & Record<string, unknown>;

export interface PolicyChange {
  path: string;
  setting: string;
  before?: string | null;
  after?: string | null;
}

export interface PolicyCheck {
  version: number;
  changes: PolicyChange[];
}

export interface PolicyVersion {
  version: number;
  timeMs: number;
  by: string;
  reason: string;
  changes: PolicyChange[];
}

export interface PolicyRules {
  version: number;
  rules: PolicyRule[];
}

export interface ExplainedSetting {
  setting: string;
  value?: string | null;
  from?: string | null;
}

export interface ResolvedPolicy {
  path: string;
  rule?: string | null;
  settings: ExplainedSetting[];
  version: number;
}

export const JOB_KINDS = ["load", "free", "persist", "verify", "scrub"] as const;
export type JobKind = (typeof JOB_KINDS)[number];
export type JobState = "queued" | "running" | "done" | "failed" | "cancelled";

export interface JobRequest {
  kind: JobKind;
  path: string;
  rateLimit?: string | null;
  concurrency?: number | null;
  dryRun?: boolean;
}

export interface JobProgress {
  objectsSeen: number;
  objectsDone: number;
  bytesDone: number;
  objectsSkipped: number;
  objectsFailed: number;
  objectsTotal?: number | null;
  bytesTotal?: number | null;
  after?: string | null;
}

export interface Job {
  id: string;
  request: JobRequest;
  state: JobState;
  createdBy: string;
  createdMs: number;
  startedMs?: number | null;
  endedMs?: number | null;
  progress: JobProgress;
  findings: number;
  error?: string | null;
}

export interface JobFinding {
  path: string;
  kind: string;
  detail: string;
  /** In a cluster, the worker that has found it. */
  worker?: string;
}

export interface ConfigurationEntry {
  name: string;
  value: string;
  default: string;
  source: string;
  about: string;
}

export interface Session {
  user: string;
  csrf: string;
  expiresMs: number;
}

/** Most rows that one call of a list asks for. */
export const PAGE_ROWS = 200;

const query = (values: Record<string, string | number | undefined | null>): string => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length === 0 ? "" : `?${given.map(([name, value]) => `${name}=${encodeURIComponent(value as string)}`).join("&")}`;
};

const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await call<T>("GET", path, { signal })).body;

export const overview = (signal?: AbortSignal) => get<Overview>("overview", signal);
export const history = (sinceMs: number | undefined, signal?: AbortSignal) =>
  get<Sample[]>(`overview/history${query({ sinceMs })}`, signal);
export const underStores = (signal?: AbortSignal) => get<UnderStoreStatus[]>("under-stores", signal);
export const cluster = (signal?: AbortSignal) => get<ClusterStatus>("cluster", signal);
export const configuration = (signal?: AbortSignal) => get<ConfigurationEntry[]>("configuration", signal);

export const buckets = (signal?: AbortSignal) => get<Bucket[]>("buckets", signal);
export const objects = (path: string, after: string | undefined, signal?: AbortSignal) =>
  get<CachedPage>(`objects${query({ path, delimiter: "/", after, limit: PAGE_ROWS })}`, signal);
export const objectDetail = (path: string, signal?: AbortSignal) => get<ObjectDetail>(`objects/detail${query({ path })}`, signal);
export const contentPath = (path: string) => `objects/content${query({ path })}`;
export const deleteObject = (path: string) => call<void>("DELETE", contentPath(path));

/** Rules with the version that a change of them must name. */
export interface VersionedRules {
  rules: PolicyRule[];
  version: string;
}

const versioned = (answer: Answer<unknown>): VersionedRules => ({
  rules: listOf<PolicyRule>(answer.body),
  version: (answer.etag ?? "").replaceAll('"', ""),
});

const ifMatch = (version: string) => ({ "If-Match": `"${version}"` });

export const policies = async (signal?: AbortSignal) => versioned(await call("GET", "policies", { signal }));
export const replacePolicies = async (rules: unknown, version: string) =>
  versioned(await call("PUT", "policies", { body: rules, headers: ifMatch(version) }));
export const checkPolicies = async (rules: unknown) => (await call<PolicyCheck>("POST", "policies/check", { body: rules })).body;
export const resolvePolicy = (path: string, signal?: AbortSignal) => get<ResolvedPolicy>(`policies/resolve${query({ path })}`, signal);
export const policyHistory = (signal?: AbortSignal) => get<PolicyVersion[]>("policies/history", signal);
export const policiesAt = (version: number, signal?: AbortSignal) => get<PolicyRules>(`policies/history/${version}`, signal);
export const rollBack = async (to: number, present: string) =>
  versioned(await call("POST", "policies/rollback", { body: { version: to }, headers: ifMatch(present) }));

export const jobs = (signal?: AbortSignal) => get<Job[]>("jobs", signal);
export const job = (id: string, signal?: AbortSignal) => get<Job>(`jobs/${encodeURIComponent(id)}`, signal);
export const findings = (id: string, after: number, signal?: AbortSignal) =>
  get<JobFinding[]>(`jobs/${encodeURIComponent(id)}/findings${query({ after, limit: PAGE_ROWS })}`, signal);
export const createJob = async (request: JobRequest) => (await call<Job>("POST", "jobs", { body: request })).body;
export const cancelJob = async (id: string) => (await call<Job>("POST", `jobs/${encodeURIComponent(id)}/cancel`)).body;
