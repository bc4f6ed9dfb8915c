// Recall of a collection: the curves of its segments, and audits.

import { useState } from "preact/hooks";
import { collection, type CollectionInfo } from "../api";
import { AuditPanel } from "../audit_panel";
import { AuditedOverTime, useLiveAudit } from "../audited";
import { plural } from "../format";
import { useLoad } from "../load";
import { Busy, ErrorBox } from "../parts";
import { RecallChart, type NamedCurve } from "../recall_chart";

/** Segments whose curves are drawn; the largest ones. */
const MOST_CURVES = 6;
export function RecallView({ info }: { info: CollectionInfo }) {
  const { name, schema } = info;
  const [field, setField] = useState(schema.vectors[0]?.name ?? "");
  const [k, setK] = useState(10);
  const curves = useLoad(() => collection(name).recall({ field, k }), [name, field, k]);
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

      <AuditPanel
        name={name}
        rows={info.rows}
        what="rows of the collection"
        audit={(queries, recalls, seed) => collection(name).audit({ field, k, queries, recalls, seed })}
      />
      <AuditedOverTime found={found} />
    </section>
  );
}
