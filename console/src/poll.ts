/** Values that the server has, asked for again and again while somebody looks. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./client";

export interface Polled<T> {
  /** The last answer; stays while later requests fail. */
  data: T | undefined;
  /** What the last request failed with. */
  error: ApiError | undefined;
  /** Asks now. */
  refresh: () => void;
}

/** The first pause after a failure grows with each further one, up to this. */
const PAUSE_MS_MAX = 10_000;

const asApiError = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError(0, error instanceof Error ? error.message : String(error));

/**
 * Asks `fetcher` when `key` changes, and every `everyMs` after that (never again when it is 0). A hidden page does not ask, and asks at
 * once when it is shown again.
 */
export function usePoll<T>(key: string, fetcher: (signal: AbortSignal) => Promise<T>, everyMs: number): Polled<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: ApiError }>({ key });
  const [asked, setAsked] = useState(0);
  const latest = useRef(fetcher);
  latest.current = fetcher;

  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let failures = 0;
    let running = false;
    const later = () => {
      const pause = failures > 0 ? Math.min(1000 * 2 ** (failures - 1), PAUSE_MS_MAX) : everyMs;
      if (everyMs > 0 || failures > 0) timer = window.setTimeout(ask, pause);
    };
    const ask = async () => {
      clearTimeout(timer);
      if (document.hidden || running) return;
      running = true;
      try {
        const data = await latest.current(stop.signal);
        if (stop.signal.aborted) return;
        failures = 0;
        setState({ key, data });
      } catch (error) {
        if (stop.signal.aborted) return;
        const problem = asApiError(error);
        // What the server has refused it will refuse again, unless this is asked regularly.
        failures = problem.status === 0 || problem.status >= 500 ? failures + 1 : 0;
        setState((before) => ({ key, data: before.key === key ? before.data : undefined, error: problem }));
      } finally {
        running = false;
      }
      later();
    };
    const shown = () => void (document.hidden || ask());
    document.addEventListener("visibilitychange", shown);
    void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [key, everyMs, asked]);

  const refresh = useCallback(() => setAsked((before) => before + 1), []);
  // An answer to the question before is none to this one.
  return state.key === key ? { data: state.data, error: state.error, refresh } : { data: undefined, error: undefined, refresh };
}

export interface Action<A extends unknown[]> {
  run: (...args: A) => void;
  busy: boolean;
  error: ApiError | undefined;
  clear: () => void;
}

/** Something that a person sets off: one at a time, with its error. */
export function useAction<A extends unknown[]>(action: (...args: A) => Promise<void>): Action<A> {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const mounted = useRef(true);
  useEffect(() => () => void (mounted.current = false), []);
  const run = async (...args: A) => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await action(...args);
    } catch (problem) {
      if (mounted.current) setError(asApiError(problem));
    } finally {
      if (mounted.current) setBusy(false);
    }
  };
  return { run: (...args) => void run(...args), busy, error, clear: () => setError(undefined) };
}
