/** The settings in force, and where each comes from. */

import { useState } from "preact/hooks";
import * as api from "../api";
import type { ConfigurationEntry } from "../api";
import { plural } from "../format";
import { Empty, Loaded, Prose, Table } from "../parts/basic";
import { usePoll } from "../poll";

const matches = (entry: ConfigurationEntry, word: string) =>
  [entry.name, entry.value, entry.source, entry.about].some((text) => text.toLowerCase().includes(word));

export function Configuration() {
  // It changes only with a restart.
  const configuration = usePoll("configuration", api.configuration, 0);
  const [word, setWord] = useState("");
  const [changedOnly, setChangedOnly] = useState(false);
  return (
    <>
      <h1>Configuration</h1>
      <Loaded from={configuration} lines={10}>
        {(entries) => {
          const words = word.toLowerCase().split(/\s+/).filter(Boolean);
          const shown = entries.filter((entry) => words.every((one) => matches(entry, one)) && (!changedOnly || entry.source !== "default"));
          return (
            <>
              <form class="row" role="search" onSubmit={(event) => event.preventDefault()}>
                <input
                  type="search"
                  aria-label="Filter"
                  placeholder="Filter by name, value, source or meaning"
                  class="path"
                  value={word}
                  onInput={(event) => setWord(event.currentTarget.value)}
                />
                <label class="check">
                  <input type="checkbox" checked={changedOnly} onChange={(event) => setChangedOnly(event.currentTarget.checked)} /> Only what is
                  set
                </label>
                <span class="hint" role="status">
                  {plural(shown.length, "setting")} of {entries.length}
                </span>
              </form>
              {shown.length === 0 ? <Empty>No setting is like that.</Empty> : <Entries entries={shown} />}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

function Entries({ entries }: { entries: ConfigurationEntry[] }) {
  return (
    <Table label="Settings" kind="configuration" columns={["Setting", "Value", "Default", "Source", "Meaning"]}>
      {entries.map(({ name, value, default: usual, source, about }) => (
        <tr key={name} class={source === "default" ? "" : "set"}>
          <th scope="row">
            <code>{name}</code>
          </th>
          <td class="wrap">{value === "" ? <i>empty</i> : value}</td>
          <td class="wrap muted">{usual}</td>
          <td class="wrap">{source}</td>
          <td class="about">
            <Prose text={about} />
          </td>
        </tr>
      ))}
    </Table>
  );
}
