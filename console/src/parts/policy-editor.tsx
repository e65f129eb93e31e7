/** The rules as JSON: checked by the server, shown as a difference, then applied to the version that they were made from. */

import { useState } from "preact/hooks";
import * as api from "../api";
import type { PolicyCheck, VersionedRules } from "../api";
import { ApiError } from "../client";
import { useAction } from "../poll";
import { read, textOf } from "../rules";
import { Badge, ErrorLine } from "./basic";
import { Changes } from "./changes";
import { tell } from "./toast";

interface PolicyEditorProps {
  /** The rules in force, which may move on while somebody edits. */
  present: VersionedRules;
  onApplied: () => void;
  /** The server has said that `present` is no longer so. */
  onStale: () => void;
  onClose: () => void;
}

export function PolicyEditor({ present, onApplied, onStale, onClose }: PolicyEditorProps) {
  const [base, setBase] = useState(present);
  const [text, setText] = useState(() => textOf(present.rules));
  const [checked, setChecked] = useState<{ text: string; check: PolicyCheck }>();
  const checking = useAction(async () => setChecked({ text, check: await check(text) }));
  const applying = useAction(async () => {
    try {
      const rules = await api.replacePolicies(JSON.parse(text), base.version);
      tell(`Version ${rules.version} of the rules is in force.`);
      onApplied();
    } catch (error) {
      if (error instanceof ApiError && error.status === 412) onStale();
      throw error;
    }
  });

  const moved = present.version !== base.version;
  const stale = moved || applying.error?.status === 412;
  const valid = checked?.text === text ? checked.check : undefined;
  const takePresent = () => {
    setBase(present);
    setChecked(undefined);
    applying.clear();
  };
  const edit = (written: string) => {
    setText(written);
    checking.clear();
    applying.clear();
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) checking.run();
  };
  return (
    <section aria-labelledby="edit-title">
      <div class="row">
        <h2 id="edit-title">Edit the rules</h2>
        <Badge tone="plain">from version {base.version}</Badge>
      </div>
      {moved && <Stale base={base} present={present} onTake={takePresent} />}
      <label for="rules-text">
        Rules as JSON <span class="hint">(Ctrl+Enter checks)</span>
      </label>
      <textarea
        id="rules-text"
        class="code"
        rows={Math.min(28, Math.max(10, text.split("\n").length + 1))}
        spellcheck={false}
        autocapitalize="off"
        value={text}
        aria-invalid={checking.error ? true : undefined}
        aria-describedby="rules-problem"
        onInput={(event) => edit(event.currentTarget.value)}
        onKeyDown={keys}
      />
      <div id="rules-problem">
        <ErrorLine error={checking.error} />
        <ErrorLine error={moved ? undefined : applying.error} />
      </div>
      {valid && (
        <>
          <h3>What it would change</h3>
          <Changes changes={valid.changes} />
        </>
      )}
      <div class="buttons start">
        <button type="button" onClick={() => checking.run()} disabled={checking.busy}>
          {checking.busy ? "Checking …" : "Check"}
        </button>
        <button
          type="button"
          class="primary"
          onClick={() => applying.run()}
          disabled={!valid || valid.changes.length === 0 || stale || applying.busy}
          title={valid ? undefined : "Check first"}
        >
          {applying.busy ? "Applying …" : "Apply"}
        </button>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </section>
  );
}

async function check(text: string): Promise<PolicyCheck> {
  const found = read(text);
  if ("problem" in found) throw new ApiError(400, found.problem);
  return api.checkPolicies(found.rules);
}

/** Somebody else was quicker: neither side's work may be lost unseen. */
function Stale({ base, present, onTake }: { base: VersionedRules; present: VersionedRules; onTake: () => void }) {
  return (
    <div role="alert" class="error column">
      <p>
        Somebody has changed the rules meanwhile: version {present.version} is in force, and you started from {base.version}. Your text is
        kept. Compare it with the present rules, take over what is new, and check again: the difference is then against version{" "}
        {present.version}.
      </p>
      <details>
        <summary>Rules of version {present.version}</summary>
        <pre tabIndex={0} aria-label={`Rules of version ${present.version}`}>
          {textOf(present.rules)}
        </pre>
      </details>
      <button type="button" class="small" onClick={onTake}>
        Continue from version {present.version}
      </button>
    </div>
  );
}
