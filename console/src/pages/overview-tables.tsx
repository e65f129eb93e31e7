/** The last interval in numbers: operations, reads, cache directories. */

import type { Sample } from "../api";
import { bytesPerSecond, milliseconds, percent, perSecond } from "../format";
import { Badge, Empty, Table } from "../parts/basic";
import { readsByPath } from "../samples";

export function Operations({ samples }: { samples: Sample[] }) {
  const last = samples.at(-1);
  const rows = (last?.operations ?? []).filter(({ rate }) => rate > 0).sort((a, b) => b.rate - a.rate);
  return (
    <section aria-labelledby="operations-title">
      <h2 id="operations-title">Operations in the last 5 s</h2>
      {rows.length === 0 ? (
        <Empty>No requests.</Empty>
      ) : (
        <Table label="Operations" columns={["Operation", ">Rate", ">Errors", ">Throttled", ">p25", ">p50", ">p75", ">p90", ">p99"]}>
          {rows.map((row) => (
            <tr key={row.operation}>
              <th scope="row">{row.operation}</th>
              <td class="number">{perSecond(row.rate)}</td>
              <td class={`number ${row.errors > 0 ? "bad-text" : ""}`}>{perSecond(row.errors)}</td>
              <td class={`number ${row.throttled > 0 ? "warning-text" : ""}`}>{perSecond(row.throttled)}</td>
              {[row.p25Ms, row.p50Ms, row.p75Ms, row.p90Ms, row.p99Ms].map((value, at) => (
                <td key={at} class="number">
                  {milliseconds(value)}
                </td>
              ))}
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

export function Reads({ samples }: { samples: Sample[] }) {
  const rows = readsByPath(samples.at(-1)?.reads ?? []).filter(({ memory, disk, underStore }) => memory + disk + underStore > 0);
  return (
    <section aria-labelledby="reads-title">
      <h2 id="reads-title">Reads in the last 5 s, by policy path</h2>
      {rows.length === 0 ? (
        <Empty>Nothing was read.</Empty>
      ) : (
        <Table label="Reads" columns={["Path", ">Memory", ">Disk", ">Under store", ">From here", ">Bytes"]}>
          {rows.map((row) => (
            <tr key={row.path}>
              <th scope="row">
                <code>{row.path}</code>
              </th>
              <td class="number">{perSecond(row.memory)}</td>
              <td class="number">{perSecond(row.disk)}</td>
              <td class="number">{perSecond(row.underStore)}</td>
              <td class="number">{percent(row.hitRatio)}</td>
              <td class="number">{bytesPerSecond(row.bytes)}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

export function Disks({ sample, failed }: { sample: Sample | undefined; failed: string[] }) {
  const disks = sample?.disks ?? [];
  return (
    <section aria-labelledby="disks-title">
      <h2 id="disks-title">Cache directories</h2>
      {failed.map((directory) => (
        <p key={directory} class="error">
          Takes no more writes: {directory}
        </p>
      ))}
      {disks.length === 0 ? (
        <Empty>No sample yet.</Empty>
      ) : (
        <Table label="Cache directories" columns={["Directory", "State", ">Device busy", ">Write and sync", ">Written"]}>
          {disks.map((disk) => (
            <tr key={disk.directory}>
              <th scope="row">
                <code>{disk.directory}</code>
              </th>
              <td>{disk.failed ? <Badge tone="bad">failed</Badge> : <Badge tone="good">writing</Badge>}</td>
              <td class="number">{percent(disk.busy)}</td>
              <td class="number">{milliseconds(disk.syncMs)}</td>
              <td class="number">{bytesPerSecond(disk.writtenBytes)}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}
