/** The frame around the pages: who is logged in, where one may go, and whether the server is there. */

import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import * as api from "./api";
import { loadSession, logOut, session, unreachableSince } from "./client";
import { clock } from "./format";
import { ClusterPage } from "./pages/cluster";
import { Configuration } from "./pages/configuration";
import { JobsPage } from "./pages/jobs";
import { Login } from "./pages/login";
import { ObjectsPage } from "./pages/objects";
import { OverviewPage } from "./pages/overview";
import { Policies } from "./pages/policies";
import { UnderStores } from "./pages/under-stores";
import { ThemeSwitch } from "./parts/theme-switch";
import { Toasts } from "./parts/toast";
import { useAction, usePoll } from "./poll";
import { hrefOf, route, type Route } from "./route";
import { useStore } from "./store";

const CLUSTER = "cluster";
const PAGES: { name: string; title: string; page: ComponentType }[] = [
  { name: "overview", title: "Overview", page: OverviewPage },
  { name: "objects", title: "Objects", page: ObjectsPage },
  { name: "policies", title: "Path policies", page: Policies },
  { name: "jobs", title: "Jobs", page: JobsPage },
  { name: CLUSTER, title: "Cluster", page: ClusterPage },
  { name: "under-stores", title: "Under stores", page: UnderStores },
  { name: "configuration", title: "Configuration", page: Configuration },
];

/** How often to check whether the server is back, before anybody is logged in. */
const RETRY_MS = 2000;

export function App() {
  const state = useStore(session);
  useEffect(() => {
    if (state.is !== "unknown") return;
    let timer = 0;
    const ask = () => loadSession().catch(() => (timer = window.setTimeout(ask, RETRY_MS)));
    void ask();
    return () => clearTimeout(timer);
  }, [state.is]);
  return (
    <>
      <Unreachable />
      {state.is === "open" && <Frame user={state.session.user} />}
      {state.is === "none" && <Login why={state.why} />}
      {state.is === "unknown" && <Opening />}
      <Toasts />
    </>
  );
}

/** Shown only when the first answer takes its time. */
function Opening() {
  return (
    <main class="opening">
      <p>Connecting to Forebay …</p>
    </main>
  );
}

function Unreachable() {
  const since = useStore(unreachableSince);
  return (
    <div role="status" class="unreachable-place">
      {since !== null && (
        <p class="unreachable">
          The server has not answered since {clock(since)}. This page may be out of date. It reconnects by itself.
        </p>
      )}
    </div>
  );
}

/** Those that this server has something to show on. Whether it belongs to a cluster stays as it is until the session ends. */
function usePages() {
  const cluster = usePoll("in a cluster", api.cluster, 0);
  return PAGES.filter(({ name }) => name !== CLUSTER || cluster.data !== undefined);
}

function Frame({ user }: { user: string }) {
  const where = useStore(route);
  const { page } = where;
  const main = useRef<HTMLElement>(null);
  const pages = usePages();
  const found = PAGES.find(({ name }) => name === page);
  useTitle(found?.title ?? "No such page");
  useFocusOnChange(where, main);
  // Where the links do not fit beside each other, they scroll.
  useEffect(() => document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [page]);
  const Page = found?.page ?? NoSuchPage;
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <header class="top">
        <div class="brand">
          <img src="icon.svg" alt="" width="22" height="22" />
          <span>Forebay</span>
        </div>
        <nav aria-label="Pages">
          {pages.map(({ name, title }) => (
            <a key={name} href={hrefOf(name)} aria-current={name === page ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <div class="account">
          <ThemeSwitch />
          <span class="user" title="Logged in as">
            {user}
          </span>
          <LogOut />
        </div>
      </header>
      <main ref={main} tabIndex={-1} key={page}>
        <Page />
      </main>
    </>
  );
}

function useTitle(title: string) {
  useEffect(() => {
    document.title = `${title} – Forebay`;
  }, [title]);
}

/** A new page is read from its beginning; without this, the focus would stay at the link, or be lost with what it was on. */
function useFocusOnChange(shown: Route, main: { current: HTMLElement | null }) {
  const before = useRef(shown);
  useEffect(() => {
    if (before.current === shown) return;
    const another = before.current.page !== shown.page;
    before.current = shown;
    if (another) scrollTo(0, 0);
    if (another || document.activeElement === document.body) main.current?.focus({ preventScroll: true });
  }, [shown]);
}

function LogOut() {
  const { run, busy, error } = useAction(logOut);
  return (
    <button type="button" class="quiet" onClick={() => run()} disabled={busy} title={error?.message}>
      Log out
    </button>
  );
}

function NoSuchPage() {
  return (
    <>
      <h1>No such page</h1>
      <p>
        <a href={hrefOf("overview")}>Go to the overview</a>
      </p>
    </>
  );
}
