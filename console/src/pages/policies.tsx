/** Path policies: the rules, what they make of a path, and how they came to be. */

import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import type { PolicyRule, VersionedRules } from "../api";
import { Badge, Empty, Loaded, Table } from "../parts/basic";
import { PolicyEditor } from "../parts/policy-editor";
import { usePoll } from "../poll";
import { goTo, pathOf, route } from "../route";
import { settingsOf, unquoted } from "../rules";
import { useStore } from "../store";
import { History } from "./policy-history";

const EVERY_MS = 10_000;

export function Policies() {
  const [editing, setEditing] = useState(false);
  const rules = usePoll("policies", api.policies, EVERY_MS);
  const history = usePoll("history", api.policyHistory, EVERY_MS);
  const changed = () => {
    rules.refresh();
    history.refresh();
  };
  return (
    <>
      <h1>Path policies</h1>
      <Loaded from={rules}>
        {(present) =>
          editing ? (
            <PolicyEditor
              present={present}
              onClose={() => setEditing(false)}
              onStale={changed}
              onApplied={() => {
                setEditing(false);
                changed();
              }}
            />
          ) : (
            <Rules present={present} onEdit={() => setEditing(true)} />
          )
        }
      </Loaded>
      <Resolve />
      <History history={history} present={rules.data} onRolledBack={changed} />
    </>
  );
}

function Rules({ present, onEdit }: { present: VersionedRules; onEdit: () => void }) {
  return (
    <section aria-labelledby="rules-title">
      <div class="row">
        <h2 id="rules-title">Rules</h2>
        <Badge tone="plain">version {present.version}</Badge>
        <button type="button" class="primary" onClick={onEdit}>
          Edit …
        </button>
      </div>
      <p class="hint">Each setting of a path comes from the longest rule that gives it.</p>
      {present.rules.length === 0 ? (
        <Empty>There are no rules: the defaults hold everywhere.</Empty>
      ) : (
        <Table label="Rules" columns={["Path", "Settings"]}>
          {present.rules.map((rule) => (
            <tr key={rule.path}>
              <th scope="row">
                <code>{rule.path}</code>
              </th>
              <td>
                <Settings rule={rule} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function Settings({ rule }: { rule: PolicyRule }) {
  const settings = settingsOf(rule);
  if (settings.length === 0) return <i>sets nothing</i>;
  return (
    <ul class="settings">
      {settings.map(([name, value]) => (
        <li key={name}>
          {name} <b>{value}</b>
        </li>
      ))}
    </ul>
  );
}

function Resolve() {
  const { resolve = "" } = useStore(route).parameters;
  const [written, setWritten] = useState(resolve);
  useEffect(() => setWritten(resolve), [resolve]);
  const submit = (event: Event) => {
    event.preventDefault();
    goTo("policies", { resolve: written.trim() && pathOf(written) });
  };
  return (
    <section aria-labelledby="resolve-title">
      <h2 id="resolve-title">What holds for a path</h2>
      <form class="row" onSubmit={submit}>
        <input
          aria-label="Path"
          class="path"
          placeholder="s3://bucket/key"
          spellcheck={false}
          value={written}
          onInput={(event) => setWritten(event.currentTarget.value)}
        />
        <button type="submit">Resolve</button>
      </form>
      {resolve && <Resolved key={resolve} path={resolve} />}
    </section>
  );
}

function Resolved({ path }: { path: string }) {
  const resolved = usePoll(path, (signal) => api.resolvePolicy(path, signal), EVERY_MS);
  return (
    <Loaded from={resolved}>
      {({ settings, rule }) => (
        <>
          <p>
            <code class="wrap">{path}</code> falls under {rule ? <code>{rule}</code> : "no rule"}.
          </p>
          <Table label="Settings that hold" columns={["Setting", "Value", "From"]}>
            {settings.map(({ setting, value, from }) => (
              <tr key={setting}>
                <th scope="row">{setting}</th>
                <td>{unquoted(value) ?? <i>none</i>}</td>
                <td>{from ? <code>{from}</code> : <i>default</i>}</td>
              </tr>
            ))}
          </Table>
        </>
      )}
    </Loaded>
  );
}
