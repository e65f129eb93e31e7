/** The versions of the rules, and the way back to one. */

import { useState } from "preact/hooks";
import * as api from "../api";
import type { PolicyVersion, VersionedRules } from "../api";
import { plural } from "../format";
import { Badge, Empty, Loaded, Table, Time } from "../parts/basic";
import { Changes } from "../parts/changes";
import { Confirm, Dialog } from "../parts/dialog";
import { tell } from "../parts/toast";
import { useAction, usePoll, type Polled } from "../poll";
import { textOf } from "../rules";

interface HistoryProps {
  history: Polled<PolicyVersion[]>;
  present: VersionedRules | undefined;
  onRolledBack: () => void;
}

export function History({ history, present, onRolledBack }: HistoryProps) {
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
            <Table label="History" columns={[">Version", "Time", "By", "Reason", "Changes", "~Actions"]}>
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
            </Table>
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
      <p class="hint">It becomes a new version; the present one stays in the history.</p>
    </Confirm>
  );
}
