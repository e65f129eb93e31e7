/** Numbers, sizes, times and rates as people read them. */

const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/** What stands where there is no value. */
export const NONE = "–";

type Maybe = number | null | undefined;

const known = (value: Maybe): value is number => value !== null && value !== undefined && Number.isFinite(value);

/** Three digits that count: 1.23, 12.3, 123. */
function three(value: number): string {
  const digits = Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return value.toFixed(digits).replace(/\.0+$/, "").replace(/(\.\d*?)0+$/, "$1");
}

export function bytes(value: Maybe): string {
  if (!known(value)) return NONE;
  let unit = 0;
  let rest = value;
  while (Math.abs(rest) >= 1023.5 && unit < SIZE_UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(rest) : three(rest)} ${SIZE_UNITS[unit]}`;
}

export const bytesPerSecond = (value: Maybe): string => (known(value) ? `${bytes(value)}/s` : NONE);

/** With thin groups: 12,345. */
export function count(value: Maybe): string {
  return known(value) ? Math.round(value).toLocaleString("en") : NONE;
}

/** A count in few characters, for axes and tiles: 12.3 k. */
export function short(value: Maybe): string {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 999_500_000) return `${three(value / 1e9)} G`;
  if (size >= 999_500) return `${three(value / 1e6)} M`;
  if (size >= 9_995) return `${three(value / 1e3)} k`;
  return size >= 1000 ? count(value) : three(value);
}

export const perSecond = (value: Maybe): string => (known(value) ? `${short(value)}/s` : NONE);

export function percent(share: Maybe): string {
  if (!known(share)) return NONE;
  const value = share * 100;
  if (value > 0 && value < 0.05) return "< 0.1 %";
  // 100 % is all of it, and nothing less.
  const rounded = value < 100 && value > 99.9 ? 99.9 : value;
  return `${three(Number(rounded.toFixed(1)))} %`;
}

export function milliseconds(value: Maybe): string {
  if (!known(value)) return NONE;
  if (value >= 9_995) return duration(value);
  return value >= 1000 ? `${three(value / 1000)} s` : `${three(value)} ms`;
}

const SPANS: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
];

/** In the two largest units: 3 h 20 min. */
export function duration(ms: Maybe): string {
  if (!known(ms)) return NONE;
  if (ms < 1000) return ms <= 0 ? "0 s" : "< 1 s";
  const first = SPANS.findIndex(([, length]) => ms >= length);
  const [unit, length] = SPANS[first] ?? ["s", 1000];
  const next = SPANS[first + 1];
  const whole = Math.floor(ms / length);
  const rest = next ? Math.floor((ms % length) / next[1]) : 0;
  return rest > 0 && next ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

const two = (value: number) => String(value).padStart(2, "0");

/** A span of time that may be very short. */
export const span = (ms: Maybe): string => (known(ms) && ms > 0 && ms < 1000 ? milliseconds(ms) : duration(ms));

/** Begun with a capital letter: the server's words are parts of sentences elsewhere. */
export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** Local time, to the second: 2026-03-01 14:05:09. */
export function localTime(ms: Maybe): string {
  if (!known(ms)) return NONE;
  const t = new Date(ms);
  const day = `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
  return `${day} ${clock(ms)}`;
}

/** Local time of day: 14:05:09. */
export function clock(ms: number): string {
  const t = new Date(ms);
  return `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
}

export function utcTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** How long ago, in few words. */
export function ago(ms: number, nowMs: number): string {
  const passed = nowMs - ms;
  return passed < 1000 ? "now" : `${duration(passed)} ago`;
}

export const plural = (number: number, one: string, many = `${one}s`): string => `${count(number)} ${number === 1 ? one : many}`;
