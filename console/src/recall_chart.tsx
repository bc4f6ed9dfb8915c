// Recall against effort, as a chart and as a table.

import { useState } from "preact/hooks";
import type { RecallCurve } from "./api";
import { LineChart, type Line } from "./chart";
import { count, nanoseconds, short } from "./format";

export interface NamedCurve {
  name: string;
  curve: RecallCurve;
}

type Axis = "predicted_ns" | "search_list" | "probes";

const AXES: [Axis, string][] = [
  ["predicted_ns", "predicted time of a query"],
  ["search_list", "length of the candidate list"],
  ["probes", "groups or lists searched"],
];

export function RecallChart({ curves }: { curves: NamedCurve[] }) {
  const [axis, setAxis] = useState<Axis>("predicted_ns");
  const measured = curves.filter(({ curve }) => curve.points.length > 0);
  if (measured.length === 0) {
    return <p class="empty">Every search compares all vectors here, so its recall is 1 and there is no curve.</p>;
  }
  const lines = measured.map(({ name, curve }): Line => {
    const points = curve.points.map((point): [number, number] => [Math.max(point[axis], 1), point.recall]);
    return { name, points: points.sort((a, b) => a[0] - b[0]), dots: true };
  });
  const show = axis === "predicted_ns" ? nanoseconds : count;
  const low = Math.min(...lines.flatMap(({ points }) => points.map(([, recall]) => recall)));
  return (
    <>
      <div class="line">
        <label class="field inline">
          <span>Effort</span>
          <select value={axis} onChange={(event) => setAxis(event.currentTarget.value as Axis)}>
            {AXES.map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
      </div>
      <LineChart
        title="Recall against effort; the table below has the numbers"
        lines={lines}
        x={show}
        y={(value) => short(value)}
        xName={AXES.find(([value]) => value === axis)?.[1] ?? ""}
        yName="recall"
        logX
        low={Math.min(low, 0.8)}
        high={1}
        height={300}
      />
      <details>
        <summary>As a table</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label="Points of the curves">
          <table>
            <thead>
              <tr>
                <th scope="col">curve</th>
                {["recall", "predicted time", "candidate list", "probes", "prune"].map((name) => (
                  <th key={name} scope="col" class="number">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {measured.flatMap(({ name, curve }) =>
                curve.points.map((point, at) => (
                  <tr key={`${name} ${at}`}>
                    <th scope="row">{name}</th>
                    <td class="number">{short(point.recall)}</td>
                    <td class="number">{nanoseconds(point.predicted_ns)}</td>
                    <td class="number">{count(point.search_list)}</td>
                    <td class="number">{point.probes ? count(point.probes) : "–"}</td>
                    <td class="number">{point.prune ? short(point.prune) : "–"}</td>
                  </tr>
                )),
              )}
            </tbody>
          </table>
        </div>
      </details>
    </>
  );
}
