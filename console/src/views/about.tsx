// The schema, the segments and the upkeep of a collection.

import { useState } from "preact/hooks";
import { collection, type CollectionInfo } from "../api";
import { bytes, count, percent, plural } from "../format";
import { useAction } from "../load";
import { ErrorBox, Figure } from "../parts";

type Task = "flush" | "compact" | "verify";

const TASKS: Record<Task, { button: string; running: string; ask?: string; writes: boolean }> = {
  verify: { button: "Verify every byte", running: "Verifying …", writes: false },
  flush: { button: "Write rows in memory as a segment", running: "Writing …", writes: true },
  compact: {
    button: "Compact …",
    running: "Compacting …",
    ask: "Merge segments and free the space of deleted rows? It reads and writes much of the collection; searches go on meanwhile.",
    writes: true,
  },
};

function Upkeep({ name, mayWrite, changed }: { name: string; mayWrite: boolean; changed: () => void }) {
  const [asked, setAsked] = useState<Task | undefined>();
  const work = useAction(async (task: Task): Promise<{ task: Task; faults: string[] }> => {
    const own = collection(name);
    if (task === "verify") return { task, ...(await own.verify()) };
    await (task === "flush" ? own.flush() : own.compact());
    changed();
    return { task, faults: [] };
  });
  const [running, setRunning] = useState<Task | undefined>();
  const start = (task: Task) => {
    setAsked(undefined);
    setRunning(task);
    void work.run(task);
  };
  const done = work.value;
  return (
    <>
      <div class="actions">
        {(Object.keys(TASKS) as Task[])
          .filter((task) => mayWrite || !TASKS[task].writes)
          .map((task) => (
            <button
              key={task}
              class="plain"
              disabled={work.busy}
              onClick={() => (TASKS[task].ask ? setAsked(task) : start(task))}
            >
              {work.busy && running === task ? TASKS[task].running : TASKS[task].button}
            </button>
          ))}
      </div>
      {asked && (
        <div class="confirm" role="alertdialog" aria-label="Confirm">
          <p>{TASKS[asked].ask}</p>
          <button onClick={() => start(asked)}>Compact</button>
          <button class="plain" onClick={() => setAsked(undefined)}>
            Not now
          </button>
        </div>
      )}
      <ErrorBox error={work.error} />
      <div role="status">
        {done && !work.busy && done.faults.length === 0 && (
          <p class="good">
            {done.task === "verify" ? "Every byte is as it was written." : done.task === "flush" ? "Written." : "Compacted."}
          </p>
        )}
        {done && done.faults.length > 0 && (
          <div class="error">
            <ul>
              {done.faults.map((fault) => (
                <li key={fault}>{fault}</li>
              ))}
            </ul>
          </div>
        )}
      </div>
    </>
  );
}

export function AboutView(props: { info: CollectionInfo; mayWrite: boolean; changed: () => void }) {
  const { info } = props;
  const largest = Math.max(...info.segments.map((segment) => segment.bytes), 1);
  return (
    <section>
      <dl class="figures">
        <Figure label="Rows" value={count(info.rows)} note={`${count(info.rows_in_memory)} in memory only`} />
        <Figure label="Segments" value={count(info.segments.length)} note={bytes(info.bytes)} />
        <Figure label="Memory" value={bytes(info.memory_bytes + info.held_bytes)} note="new rows and open segments" />
        <Figure label="Stored for each live row" value={info.space_amplification.toFixed(2)} note="rows in segments" />
        <Figure label="Version" value={count(info.version)} note={`${plural(info.sequence, "batch", "batches")} written`} />
      </dl>
      <h2>Schema</h2>
      <div class="scroll tight" tabIndex={0} role="region" aria-label="Schema">
        <table>
          <thead>
            <tr>
              <th scope="col">name</th>
              <th scope="col">type</th>
              <th scope="col">details</th>
            </tr>
          </thead>
          <tbody>
            <tr>
              <th scope="row">id</th>
              <td>{info.schema.id}</td>
              <td />
            </tr>
            {info.schema.vectors.map((field) => (
              <tr key={field.name}>
                <th scope="row">{field.name}</th>
                <td>
                  {field.dim} × {field.element}
                </td>
                <td>
                  {field.metric}
                  {field.family && `, ${field.family}`}
                </td>
              </tr>
            ))}
            {(info.schema.columns ?? []).map((column) => (
              <tr key={column.name}>
                <th scope="row">{column.name}</th>
                <td>{column.type}</td>
                <td />
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <h2>Segments</h2>
      {info.segments.length === 0 ? (
        <p class="empty">No segments yet: all rows are in memory and in the log.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Segments">
          <table>
            <thead>
              <tr>
                <th scope="col">segment</th>
                <th scope="col" class="number">
                  rows
                </th>
                <th scope="col" class="number">
                  deleted
                </th>
                <th scope="col" class="number">
                  bytes
                </th>
                <th scope="col">
                  <span class="hidden">share of the largest</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {info.segments.map((segment) => (
                <tr key={segment.name}>
                  <th scope="row" class="mono">
                    {segment.name}
                  </th>
                  <td class="number">{count(segment.rows)}</td>
                  <td class="number">
                    {segment.deleted ? `${count(segment.deleted)} (${percent(segment.deleted / segment.rows, 0)})` : "0"}
                  </td>
                  <td class="number">{bytes(segment.bytes)}</td>
                  <td class="size">
                    <span class="size-bar" style={{ width: `${(100 * segment.bytes) / largest}%` }} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <h2>Calibrations with given queries</h2>
      {info.calibrations?.length ? (
        <ul>
          {info.calibrations.map((one) => (
            <li key={`${one.field} ${one.name}`}>
              <b>{one.name}</b> of {one.field}: {plural(one.queries, "query", "queries")},{" "}
              {new Date(one.measured_at * 1000).toLocaleString()}, in {plural(one.segments, "segment")}
            </li>
          ))}
        </ul>
      ) : (
        <p class="quiet">None: searches use the calibrations of the builds, with vectors of the data as queries.</p>
      )}
      <h2>Upkeep</h2>
      <Upkeep name={info.name} mayWrite={props.mayWrite} changed={props.changed} />
    </section>
  );
}
