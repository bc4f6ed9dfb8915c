// Recall of a collection: the curves of its segments, and audits.

import { useState } from "preact/hooks";
import { collection, type AuditReport, type CollectionInfo } from "../api";
import { AuditedOverTime, record, useLiveAudit } from "../audited";
import { count, plural, seconds, short } from "../format";
import { useAction, useLoad } from "../load";
import { Busy, ErrorBox, Notes } from "../parts";
import { RecallChart, type NamedCurve } from "../recall_chart";

/** Segments whose curves are drawn; the largest ones. */
const MOST_CURVES = 6;
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

export function RecallView({ info }: { info: CollectionInfo }) {
  const { name, schema } = info;
  const [field, setField] = useState(schema.vectors[0]?.name ?? "");
  const [k, setK] = useState(10);
  const [queries, setQueries] = useState(100);
  const curves = useLoad(() => collection(name).recall({ field, k }), [name, field, k]);
  const audit = useAction(async () => {
    const report = await collection(name).audit({ field, k, queries, recalls: RECALLS, seed: Date.now() % 2 ** 32 });
    record(name, report.recalls);
    return report;
  });
  const found = useLiveAudit(name, async () => (await collection(name).stats()).audit);
  const segments = [...(curves.value?.segments ?? [])].sort((a, b) => b.rows - a.rows);
  const all: NamedCurve[] = segments.slice(0, MOST_CURVES).flatMap(({ part, curves: own }) =>
    own.map((curve) => ({ name: curve.calibration === "build" ? part : `${part}, ${curve.calibration}`, curve })),
  );
  const exact = segments.filter(({ curves: own }) => own.every(({ points }) => points.length === 0));
  return (
    <section>
      <div class="options">
        {schema.vectors.length > 1 && (
          <label class="field">
            <span>Vector field</span>
            <select value={field} onChange={(event) => setField(event.currentTarget.value)}>
              {schema.vectors.map((one) => (
                <option key={one.name}>{one.name}</option>
              ))}
            </select>
          </label>
        )}
        <label class="field narrow">
          <span>Neighbours (k)</span>
          <select value={k} onChange={(event) => setK(Number(event.currentTarget.value))}>
            {[1, 10, 100].map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
      </div>
      <h2>Recall against effort</h2>
      <p class="quiet">
        As the calibrations have it: each point is the cheapest effort for a recall, in one segment
        {segments.length > MOST_CURVES && `; the ${MOST_CURVES} largest of ${segments.length} segments are shown`}.
        {exact.length > 0 && segments.length > exact.length &&
          ` ${plural(exact.length, "small segment is", "small segments are")} compared whole.`}
      </p>
      <ErrorBox error={curves.error} again={curves.again} />
      <Busy on={curves.busy && !curves.value} />
      {curves.value && segments.length > 0 && <RecallChart curves={all} />}
      {curves.value && segments.length === 0 && (
        <p class="empty">All rows are in memory still and are compared one by one: every answer is exact.</p>
      )}

      <h2>Audit</h2>
      <p class="quiet">
        Searches for some recalls, beside exact answers to the same queries. The queries are rows of the collection,
        drawn at random: each finds itself, so other queries may find a little less.
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
        <button disabled={audit.busy || info.rows === 0} onClick={() => void audit.run()}>
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
      <AuditedOverTime found={found} />
    </section>
  );
}
