/** Path policies: the rules, what they make of a path, and how they came to be. */

import { useEffect, useState } from "preact/hooks";
import * as api from "../api";
import type { PolicyRule, PolicyVersion, VersionedRules } from "../api";
import { plural } from "../format";
import { Badge, Empty, ErrorLine, Loaded, Scroll, Time } from "../parts/basic";
import { Changes } from "../parts/changes";
import { Confirm, Dialog } from "../parts/dialog";
import { PolicyEditor } from "../parts/policy-editor";
import { tell } from "../parts/toast";
import { useAction, usePoll, type Polled } from "../poll";
import { goTo, pathOf, route } from "../route";
import { settingsOf, textOf, unquoted } from "../rules";
import { useStore } from "../store";

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
        <Scroll label="Rules">
          <table>
            <thead>
              <tr>
                <th scope="col">Path</th>
                <th scope="col">Settings</th>
              </tr>
            </thead>
            <tbody>
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
            </tbody>
          </table>
        </Scroll>
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
          <Scroll label="Settings that hold">
            <table>
              <thead>
                <tr>
                  <th scope="col">Setting</th>
                  <th scope="col">Value</th>
                  <th scope="col">From</th>
                </tr>
              </thead>
              <tbody>
                {settings.map(({ setting, value, from }) => (
                  <tr key={setting}>
                    <th scope="row">{setting}</th>
                    <td>{unquoted(value) ?? <i>none</i>}</td>
                    <td>{from ? <code>{from}</code> : <i>default</i>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </>
      )}
    </Loaded>
  );
}

interface HistoryProps {
  history: Polled<PolicyVersion[]>;
  present: VersionedRules | undefined;
  onRolledBack: () => void;
}

function History({ history, present, onRolledBack }: HistoryProps) {
  const [looking, setLooking] = useState<PolicyVersion>();
  const [returning, setReturning] = useState<PolicyVersion>();
  return (
    <section aria-labelledby="history-title">
      <h2 id="history-title">History</h2>
      <Loaded from={history}>
        {(versions) =>
          versions.length === 0 ? (
            <Empty>No version is kept yet.</Empty>
          ) : (
            <Scroll label="History">
              <table>
                <thead>
                  <tr>
                    <th scope="col" class="number">
                      Version
                    </th>
                    <th scope="col">Time</th>
                    <th scope="col">By</th>
                    <th scope="col">Reason</th>
                    <th scope="col">Changes</th>
                    <th scope="col">
                      <span class="unseen">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {versions.map((version) => (
                    <tr key={version.version}>
                      <th scope="row" class="number">
                        {version.version}
                      </th>
                      <td>
                        <Time ms={version.timeMs} />
                      </td>
                      <td>{version.by}</td>
                      <td>{version.reason}</td>
                      <td>{plural(version.changes.length, "change")}</td>
                      <td class="actions">
                        <button type="button" class="small" aria-label={`Show version ${version.version}`} onClick={() => setLooking(version)}>
                          Show
                        </button>
                        {String(version.version) === present?.version ? (
                          <Badge tone="good">in force</Badge>
                        ) : (
                          <button
                            type="button"
                            class="small"
                            aria-label={`Roll back to version ${version.version}`}
                            onClick={() => setReturning(version)}
                          >
                            Roll back …
                          </button>
                        )}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Scroll>
          )
        }
      </Loaded>
      {looking && <Version version={looking} onClose={() => setLooking(undefined)} />}
      {returning && present && (
        <RollBack
          to={returning.version}
          present={present}
          onClose={() => setReturning(undefined)}
          onDone={() => {
            setReturning(undefined);
            onRolledBack();
          }}
        />
      )}
    </section>
  );
}

function Version({ version, onClose }: { version: PolicyVersion; onClose: () => void }) {
  const rules = usePoll(String(version.version), (signal) => api.policiesAt(version.version, signal), 0);
  return (
    <Dialog title={`Version ${version.version}`} onClose={onClose} wide>
      <h3>What it changed</h3>
      <Changes changes={version.changes} />
      <h3>Its rules</h3>
      <Loaded from={rules}>
        {(found) => (
          <pre tabIndex={0} aria-label="Rules">
            {textOf(found.rules)}
          </pre>
        )}
      </Loaded>
      <div class="buttons">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

interface RollBackProps {
  to: number;
  present: VersionedRules;
  onClose: () => void;
  onDone: () => void;
}

/** Shows what going back would change now, which is not what that version changed then. */
function RollBack({ to, present, onClose, onDone }: RollBackProps) {
  // The rules may change under the question: the answer then has to be refused.
  const [asked] = useState(present.version);
  const check = usePoll(`${to}`, async (signal) => api.checkPolicies((await api.policiesAt(to, signal)).rules), 0);
  const going = useAction(async () => {
    await api.rollBack(to, asked);
    tell(`The rules are those of version ${to} again.`);
    onDone();
  });
  const stale = going.error?.status === 412;
  return (
    <Confirm
      title={`Roll back to version ${to}?`}
      action="Roll back"
      busy={going.busy}
      disabled={check.data === undefined || check.data.changes.length === 0 || stale}
      error={stale ? undefined : going.error}
      onConfirm={going.run}
      onClose={onClose}
      wide
    >
      <Loaded from={check}>{({ changes }) => <Changes changes={changes} />}</Loaded>
      {stale && (
        <p role="alert" class="error">
          Somebody has changed the rules since this was asked. Close this and look again.
        </p>
      )}
      {check.data === undefined && <ErrorLine error={check.error} />}
      <p class="hint">It becomes a new version; the present one stays in the history.</p>
    </Confirm>
  );
}
