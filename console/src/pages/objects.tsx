/** Buckets, what is in them, and one object: three levels of one page, by its path. */

import { useState } from "preact/hooks";
import * as api from "../api";
import type { CachedObject, CachedPage } from "../api";
import { bytes, percent, plural } from "../format";
import { Empty, ErrorLine, Loaded, Table, Time } from "../parts/basic";
import { StateBadge, tierName } from "../parts/object-state";
import { Upload } from "../parts/upload";
import { useAction, usePoll } from "../poll";
import { goTo, hrefOf, levelsOf, pathOf, route } from "../route";
import { useStore } from "../store";
import { ObjectPage } from "./object";

export function ObjectsPage() {
  const { path, object } = useStore(route).parameters;
  if (object) return <ObjectPage key={object} path={object} />;
  return path && path !== "/" ? <Listing key={path} path={path} /> : <Buckets />;
}

/** Where one is, and a field to go elsewhere. */
export function Place({ path }: { path: string }) {
  const levels = levelsOf(path);
  return (
    <div class="row place">
      <nav aria-label="Path" class="crumbs">
        <a href={hrefOf("objects")}>All buckets</a>
        {levels.map((level, at) => (
          <span key={level.path}>
            <span class="divider">/</span>
            {at === levels.length - 1 ? <b aria-current="location">{level.name}</b> : <a href={hrefOf("objects", { path: level.path })}>{level.name}</a>}
          </span>
        ))}
      </nav>
      <GoTo />
    </div>
  );
}

/** A path that ends in `/`, and a bucket, is listed; any other is an object. */
function GoTo() {
  const [written, setWritten] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    const path = pathOf(written);
    if (path === "/") return;
    const lists = path.endsWith("/") || !path.slice(1).includes("/");
    goTo("objects", lists ? { path: path.endsWith("/") ? path : `${path}/` } : { object: path });
    setWritten("");
  };
  return (
    <form class="go-to" onSubmit={submit}>
      <input
        aria-label="Go to a path"
        placeholder="s3://bucket/prefix/ or object"
        value={written}
        spellcheck={false}
        onInput={(event) => setWritten(event.currentTarget.value)}
      />
      <button type="submit">Go</button>
    </form>
  );
}

function Buckets() {
  const buckets = usePoll("buckets", api.buckets, 30_000);
  return (
    <>
      <h1>Objects</h1>
      <Place path="/" />
      <Loaded from={buckets}>
        {(all) =>
          all.length === 0 ? (
            <Empty>There are no buckets. A client makes one by S3: aws s3 mb s3://name</Empty>
          ) : (
            <Table label="Buckets" columns={["Bucket", "Created"]}>
              {all.map(({ name, createdMs }) => (
                <tr key={name}>
                  <th scope="row">
                    <a href={hrefOf("objects", { path: `/${name}/` })}>{name}</a>
                  </th>
                  <td>
                    <Time ms={createdMs} />
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
    </>
  );
}

function Listing({ path }: { path: string }) {
  const first = usePoll(path, (signal) => api.objects(path, undefined, signal), 0);
  const [more, setMore] = useState<CachedPage[]>([]);
  const loading = useAction(async (after: string) => {
    const page = await api.objects(path, after);
    setMore((before) => [...before, page]);
  });
  const again = () => {
    setMore([]);
    first.refresh();
  };
  return (
    <>
      <h1>Objects</h1>
      <Place path={path} />
      <div class="row">
        <Upload into={path} onDone={again} />
        <button type="button" onClick={again}>
          Refresh
        </button>
        <span class="grow" />
        <a href={hrefOf("jobs", { path })}>Jobs for this path</a>
        <a href={hrefOf("policies", { resolve: path })}>Policy here</a>
      </div>
      <Loaded from={first} lines={8}>
        {(page) => (
          <>
            <Entries path={path} pages={[page, ...more]} />
            <ErrorLine error={loading.error} />
            <More next={(more.at(-1) ?? page).next} busy={loading.busy} onMore={loading.run} />
          </>
        )}
      </Loaded>
    </>
  );
}

function More({ next, busy, onMore }: { next: string | null | undefined; busy: boolean; onMore: (after: string) => void }) {
  if (!next) return null;
  return (
    <div class="row">
      <button type="button" onClick={() => onMore(next)} disabled={busy}>
        {busy ? "Loading …" : "Show more"}
      </button>
    </div>
  );
}

function Entries({ path, pages }: { path: string; pages: CachedPage[] }) {
  const bucket = path.split("/")[1] ?? "";
  const prefix = path.slice(bucket.length + 2);
  const prefixes = pages.flatMap((page) => page.prefixes);
  const objects = pages.flatMap((page) => page.objects);
  if (prefixes.length + objects.length === 0 && !pages.at(-1)?.next) return <Empty>There is nothing under this path.</Empty>;
  return (
    <>
      <p class="hint">
        {plural(objects.length, "object")} and {plural(prefixes.length, "prefix", "prefixes")}{pages.at(-1)?.next ? " so far" : ""}
      </p>
      <Table label="Objects" columns={["Name", "State", "Nearest tier", ">On disk", ">Size", "Modified"]}>
        {prefixes.map((name) => (
          <tr key={`p ${name}`}>
            <th scope="row" colSpan={6}>
              <a href={hrefOf("objects", { path: `/${bucket}/${name}` })}>{name.slice(prefix.length)}</a>
            </th>
          </tr>
        ))}
        {objects.map((object) => (
          <ObjectRow key={`o ${object.key}`} bucket={bucket} prefix={prefix} object={object} />
        ))}
      </Table>
    </>
  );
}

function ObjectRow({ bucket, prefix, object }: { bucket: string; prefix: string; object: CachedObject }) {
  const { key, size, state, tier, cachedBytes, lastModifiedMs } = object;
  return (
    <tr>
      <th scope="row">
        <a href={hrefOf("objects", { object: `/${bucket}/${key}` })}>{key.slice(prefix.length) || key}</a>
      </th>
      <td>
        <StateBadge state={state} />
      </td>
      <td>{tierName(tier)}</td>
      <td class="number">{size === 0 ? "" : percent(Math.min(cachedBytes / size, 1))}</td>
      <td class="number">{bytes(size)}</td>
      <td>
        <Time ms={lastModifiedMs} />
      </td>
    </tr>
  );
}
