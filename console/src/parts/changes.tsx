import type { PolicyChange } from "../api";
import { unquoted } from "../rules";
import { Empty, Table } from "./basic";

/** What changes from one version of the rules to another. */
export function Changes({ changes }: { changes: PolicyChange[] }) {
  if (changes.length === 0) return <Empty>Nothing changes.</Empty>;
  return (
    <Table label="Changes" kind="changes" columns={["Path", "Setting", "Before", "After"]}>
      {changes.map((change) => (
        <tr key={`${change.path} ${change.setting}`}>
          <th scope="row">
            <code>{change.path}</code>
          </th>
          <td>{change.setting || "the rule itself"}</td>
          <td>{change.before == null ? <i>not set</i> : <del>{unquoted(change.before)}</del>}</td>
          <td>{change.after == null ? <i>not set</i> : <ins>{unquoted(change.after)}</ins>}</td>
        </tr>
      ))}
    </Table>
  );
}
