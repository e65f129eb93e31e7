/** Small parts that all pages share. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../client";
import { ago, localTime, NONE, utcTime } from "../format";
import type { Polled } from "../poll";

/** A point in time: local, with UTC in the title. */
export function Time({ ms }: { ms: number | null | undefined }) {
  if (ms === null || ms === undefined) return <>{NONE}</>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={utcTime(ms)} class="nowrap">
      {localTime(ms)}
    </time>
  );
}

/** A point in time by its distance, which grows while one looks. */
export function Ago({ ms }: { ms: number | null | undefined }) {
  const now = useNow(1000);
  if (ms === null || ms === undefined) return <>{NONE}</>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={`${localTime(ms)}, ${utcTime(ms)}`} class="nowrap">
      {ago(ms, now)}
    </time>
  );
}

export function useNow(everyMs: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

export type Tone = "good" | "busy" | "warning" | "bad" | "plain";

/** A state in a word; the tone only adds to it. */
export function Badge({ tone, children, title }: { tone: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

export function ErrorLine({ error, again }: { error: ApiError | undefined; again?: () => void }) {
  if (!error) return null;
  return (
    <div role="alert" class="error">
      <span>{error.message}</span>
      {again && (
        <button type="button" class="small" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** The server's words, with what stands between backticks as code. */
export function Prose({ text }: { text: string }) {
  return <>{text.split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>;
}

/** What was asked for; until it is there, that it comes or why not. An answer that is there stays when a later request fails. */
export function Loaded<T>({ from, children, lines = 3 }: { from: Polled<T>; children: (data: T) => ComponentChildren; lines?: number }) {
  const { data, error, refresh } = from;
  // The band at the top tells of a server that does not answer.
  const told = error && error.status !== 0 ? error : data === undefined ? error : undefined;
  return (
    <>
      <ErrorLine error={told} again={refresh} />
      {data !== undefined ? children(data) : !error && <Skeleton lines={lines} />}
    </>
  );
}

function Skeleton({ lines }: { lines: number }) {
  return (
    <div class="skeleton" role="status">
      <span class="unseen">Loading</span>
      {Array.from({ length: lines }, (_, at) => (
        <div key={at} />
      ))}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** A table that scrolls by itself where the screen is narrow; keys scroll it too. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" role="group" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

/** The head of a table. Columns of numbers begin with `>`, columns whose name only screen readers need with `~`. */
export function Head({ columns }: { columns: string[] }) {
  return (
    <thead>
      <tr>
        {columns.map((column) => {
          const name = column.replace(/^[>~]/, "");
          return (
            <th key={column} scope="col" class={column.startsWith(">") ? "number" : undefined}>
              {column.startsWith("~") ? <span class="unseen">{name}</span> : name}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}

/** A table that scrolls sideways by itself where the page is narrow. Its children are the rows. */
export function Table(props: { label: string; kind?: string; columns: string[]; children: ComponentChildren }) {
  return (
    <Scroll label={props.label}>
      <table class={props.kind}>
        <Head columns={props.columns} />
        <tbody>{props.children}</tbody>
      </table>
    </Scroll>
  );
}

export interface Fact {
  name: string;
  value: ComponentChildren;
  title?: string;
}

export function Facts({ facts }: { facts: (Fact | false | undefined | null)[] }) {
  return (
    <dl class="facts">
      {facts
        .filter((fact): fact is Fact => Boolean(fact))
        .map(({ name, value, title }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd title={title}>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** One number that is looked at often. */
export function Tile({ name, value, more, tone }: { name: string; value: ComponentChildren; more?: ComponentChildren; tone?: Tone }) {
  return (
    <div class={`tile ${tone ?? ""}`}>
      <div class="tile-name">{name}</div>
      <div class="tile-value">{value}</div>
      <div class="tile-more">{more ?? "\u00a0"}</div>
    </div>
  );
}

/** How much of a whole is done. */
export function Progress({ done, all, label }: { done: number; all: number; label: string }) {
  return <progress value={done} max={Math.max(all, 1)} aria-label={label} />;
}
