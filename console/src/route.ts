/** Where the page is: `#/jobs?id=7`. Behind the hash, since the server has only one page. */

import { Store } from "./store";

export interface Route {
  page: string;
  parameters: Record<string, string>;
}

export function parseRoute(hash: string): Route {
  const [page = "", search = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  return { page: page || "overview", parameters: Object.fromEntries(new URLSearchParams(search)) };
}

export function hrefOf(page: string, parameters: Record<string, string | undefined> = {}): string {
  const given = Object.entries(parameters).filter((entry): entry is [string, string] => Boolean(entry[1]));
  // Slashes stay readable: they mean nothing special behind the hash.
  const search = given.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2F", "/")}`).join("&");
  return `#/${page}${search ? `?${search}` : ""}`;
}

export const route = new Store<Route>(parseRoute(typeof location === "undefined" ? "" : location.hash));

export function followLocation(): void {
  addEventListener("hashchange", () => route.set(parseRoute(location.hash)));
}

export function goTo(page: string, parameters: Record<string, string | undefined> = {}): void {
  location.hash = hrefOf(page, parameters);
}

/** `/bucket/key`, from what people write: `s3://bucket/key`, `bucket/key` or `/bucket/key`. */
export function pathOf(written: string): string {
  const text = written.trim().replace(/^s3:\/\//, "");
  return text.startsWith("/") ? text : `/${text}`;
}

/** The levels above a path, with the text to show: `/b/x/y` → `b`, `x/`, `y`. */
export function levelsOf(path: string): { name: string; path: string }[] {
  const names = path.split("/").slice(1);
  const levels = names.map((name, at) => {
    const last = at === names.length - 1;
    return { name: last || at === 0 ? name : `${name}/`, path: `/${names.slice(0, at + 1).join("/")}${last ? "" : "/"}` };
  });
  return levels.filter(({ name }) => name !== "");
}
