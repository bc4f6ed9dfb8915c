// An audit that is asked for: its queries, and the recall that searches found.

import { useState } from "preact/hooks";
import type { AuditReport } from "./api";
import { record } from "./audited";
import { count, plural, seconds, short } from "./format";
import { useAction } from "./load";
import { ErrorBox, Notes } from "./parts";

/** Recalls of an audit. */
const RECALLS = [0.8, 0.9, 0.95, 0.99];

function AuditTable({ report }: { report: AuditReport }) {
  return (
    <div class="scroll tight" tabIndex={0} role="region" aria-label="Audited recall">
      <table>
        <thead>
          <tr>
            <th scope="col" class="number">
              asked
            </th>
            <th scope="col" class="number">
              found
            </th>
            <th scope="col" class="number">
              95 % interval
            </th>
            <th scope="col" class="number">
              candidate list
            </th>
            <th scope="col">verdict</th>
          </tr>
        </thead>
        <tbody>
          {report.recalls.map((recall) => (
            <tr key={recall.asked}>
              <th scope="row" class="number">
                {short(recall.asked)}
              </th>
              <td class="number">{recall.found.toFixed(4)}</td>
              <td class="number">
                {recall.low.toFixed(3)} – {recall.high.toFixed(3)}
              </td>
              <td class="number">{recall.search_list ? count(recall.search_list) : "–"}</td>
              <td>
                {recall.reached ? <span class="good">reached</span> : <span class="bad">missed: calibrate</span>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Offers an audit of the collection or index `name`, whose queries are `what`, drawn at random. */
export function AuditPanel(props: {
  name: string;
  rows: number;
  what: string;
  audit: (queries: number, recalls: number[], seed: number) => Promise<AuditReport>;
}) {
  const [queries, setQueries] = useState(100);
  const audit = useAction(async () => {
    const report = await props.audit(queries, RECALLS, Date.now() % 2 ** 32);
    record(props.name, report.recalls);
    return report;
  });
  return (
    <>
      <h2>Audit</h2>
      <p class="quiet">
        Searches for some recalls, beside exact answers to the same queries. The queries are {props.what}, drawn at
        random: each finds itself, so other queries may find a little less.
      </p>
      <div class="options">
        <label class="field narrow">
          <span>Queries</span>
          <input
            type="number"
            min={1}
            max={1000}
            value={queries}
            onInput={(event) => setQueries(Math.max(1, Math.min(1000, Number(event.currentTarget.value) || 1)))}
          />
        </label>
        <button disabled={audit.busy || props.rows === 0} onClick={() => void audit.run()}>
          {audit.busy ? "Auditing …" : "Audit now"}
        </button>
      </div>
      <ErrorBox error={audit.error} />
      {audit.value && (
        <>
          <AuditTable report={audit.value} />
          <p class="quiet" role="status">
            {plural(audit.value.queries, "query", "queries")} of {plural(audit.value.k, "neighbour")} in{" "}
            {seconds(audit.value.seconds)}
          </p>
          <Notes notes={[...audit.value.notes, ...new Set(audit.value.recalls.flatMap(({ notes }) => notes))]} />
        </>
      )}
    </>
  );
}
