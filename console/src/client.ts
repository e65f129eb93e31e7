/** Requests to the admin API: the session, its token against forged requests, errors in the server's words. */

import type { Session } from "./api";
import { capital } from "./format";
import { Store } from "./store";

const BASE = "/api/v1/";
/** An answer that takes longer is a server that hangs. Verified bodies do not come this way. */
const TIMEOUT_MS = 30_000;

/** An answer that is not the one that was asked for. `status` is 0 when there was none. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export interface Answer<T> {
  body: T;
  etag: string | null;
}

/** Who is logged in: `unknown` until the server has been asked, `none` with the reason. */
export type SessionState = { is: "unknown" } | { is: "none"; why?: string } | { is: "open"; session: Session };

export const session = new Store<SessionState>({ is: "unknown" });
/** Since when the server has not answered; `null` while it does. */
export const unreachableSince = new Store<number | null>(null);

interface Options {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export const listOf = <T>(body: unknown): T[] => (Array.isArray(body) ? (body as T[]) : []);

const csrfToken = (): string => {
  const state = session.value;
  return state.is === "open" ? state.session.csrf : "";
};

const changes = (method: string) => method !== "GET" && method !== "HEAD";

function reached(): void {
  unreachableSince.set(null);
}

function unreached(): void {
  if (unreachableSince.value === null) unreachableSince.set(Date.now());
}

async function send(method: string, path: string, options: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (changes(method)) headers["x-forebay-csrf"] = csrfToken();
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const response = await fetch(BASE + path, {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal ? AbortSignal.any([options.signal, timeout]) : timeout,
      cache: "no-store",
      redirect: "error",
    });
    reached();
    return response;
  } catch (error) {
    if (options.signal?.aborted) throw error;
    unreached();
    throw new ApiError(0, "The server does not answer.");
  }
}

/** What a problem says: `detail` in the server's words, else what the status means. */
export function problemText(status: number, text: string): string {
  try {
    const { detail, title } = JSON.parse(text) as { detail?: string; title?: string };
    if (detail || title) return sentence(detail || title || "");
  } catch {
    // Not a problem document: a proxy between us and the server.
  }
  return `The server answered with status ${status}.`;
}

function sentence(text: string): string {
  const begun = capital(text);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

/** Ends the session here, since the server no longer knows it. */
export function sessionEnded(): void {
  if (session.value.is === "open") session.set({ is: "none", why: "Your session has ended. Log in to continue where you were." });
}

/** Another tab may have logged in again: the token of its session is the one that counts. Tells whether there is a new one. */
async function newToken(): Promise<boolean> {
  const before = csrfToken();
  await loadSession();
  return csrfToken() !== "" && csrfToken() !== before;
}

export async function call<T>(method: string, path: string, options: Options = {}): Promise<Answer<T>> {
  let response = await send(method, path, options);
  if (response.status === 403 && changes(method) && path !== "session" && (await newToken())) {
    response = await send(method, path, options);
  }
  const text = await response.text();
  if (!response.ok) {
    if (response.status === 401 && path !== "session") sessionEnded();
    throw new ApiError(response.status, problemText(response.status, text));
  }
  return { body: parsed(text) as T, etag: response.headers.get("ETag") };
}

/** Generations have 64 bits, and numbers here 53: they stay text. No text of a user looks so, since its quotes are escaped. */
export const exact = (text: string): string => text.replace(/("generation":\s*)(\d{16,})/g, '$1"$2"');

function parsed(text: string): unknown {
  if (text === "") return undefined;
  try {
    return JSON.parse(exact(text));
  } catch {
    throw new ApiError(0, "The answer is not from Forebay: something between it and this page has answered.");
  }
}

/** Asks the server whose session the cookie is. */
export async function loadSession(): Promise<void> {
  try {
    session.set({ is: "open", session: (await call<Session>("GET", "session")).body });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      if (session.value.is === "open") sessionEnded();
      else session.set({ is: "none" });
      return;
    }
    throw error;
  }
}

export async function logIn(accessKey: string, secretKey: string): Promise<void> {
  session.set({ is: "open", session: (await call<Session>("POST", "session", { body: { accessKey, secretKey } })).body });
}

export async function logOut(): Promise<void> {
  try {
    await call<void>("DELETE", "session");
  } catch (error) {
    // Gone already: as wanted.
    if (!(error instanceof ApiError && error.status === 401)) throw error;
  }
  session.set({ is: "none", why: "You are logged out." });
}

/** Sends a file; `fetch` cannot tell how far an upload has come. */
export function upload(path: string, file: File, onProgress: (sent: number) => void, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", BASE + path);
    request.setRequestHeader("x-forebay-csrf", csrfToken());
    request.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onload = () => {
      reached();
      if (request.status >= 200 && request.status < 300) return resolve();
      if (request.status === 401) sessionEnded();
      reject(new ApiError(request.status, problemText(request.status, request.responseText)));
    };
    request.onerror = () => reject(new ApiError(0, "The connection broke before the upload was acknowledged."));
    request.onabort = () => reject(new ApiError(0, "The upload was given up."));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

export const contentUrl = (path: string) => BASE + path;
