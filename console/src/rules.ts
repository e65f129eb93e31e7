/** Path policies as text that people edit. */

import type { PolicyRule } from "./api";

/** One setting on each line, and rules apart: what changes is easy to see. */
export const textOf = (rules: PolicyRule[]): string => JSON.stringify(rules, null, 2);

export type Read = { rules: PolicyRule[] } | { problem: string };

/** The rules in a text, or what is wrong with it and where. */
export function read(text: string): Read {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { problem: `This is not JSON: ${whereIn(text, error instanceof Error ? error.message : "")}` };
  }
  if (!Array.isArray(value)) return { problem: "Enter a list of rules: [ { \"path\": \"/bucket/\", … } ]." };
  const without = value.findIndex((rule) => typeof rule !== "object" || rule === null || typeof (rule as PolicyRule).path !== "string");
  if (without >= 0) return { problem: `Rule ${without + 1} has no path.` };
  return { rules: value as PolicyRule[] };
}

/** Browsers tell the place as a number of characters, if at all: people count lines. */
function whereIn(text: string, message: string): string {
  const found = /position (\d+)/.exec(message);
  if (!found || /line \d+/.test(message)) return message;
  const before = text.slice(0, Number(found[1]));
  const line = before.split("\n").length;
  const column = before.length - before.lastIndexOf("\n");
  return `${message.replace(/ in JSON at position \d+.*/, "")}, line ${line}, column ${column}`;
}

/** A setting's value, as text. */
export const shown = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** What a rule sets, beside its path. */
export const settingsOf = (rule: PolicyRule): [string, string][] =>
  Object.entries(rule)
    .filter(([name, value]) => name !== "path" && value !== null && value !== undefined)
    .map(([name, value]) => [name, shown(value)]);

/** A value that the server gives as JSON text, without its quotes. */
export function unquoted(text: string | null | undefined): string | undefined {
  if (text === null || text === undefined || text === "null") return undefined;
  try {
    return shown(JSON.parse(text));
  } catch {
    return text;
  }
}
