// One query as a timeline: the phases of each part, predicted above measured.

import type { ExplainedSearch, Explanation, FilteredSegment, PartPlan } from "./api";
import { bytes, count, nanoseconds, short } from "./format";
import { Notes } from "./parts";

const PHASES: [phase: string, what: string][] = [
  ["navigate", "choose groups, lists or the next records"],
  ["scan", "score codes"],
  ["read", "wait for the tier"],
  ["rerank", "compare full vectors"],
  ["other", "between the phases"],
];

type Piece = { phase: string; ns: number };

function measured({ phases, total_ns }: { phases: Piece[]; total_ns: number }): Piece[] {
  const sum = phases.reduce((total, { ns }) => total + ns, 0);
  const other = Math.max(0, total_ns - sum);
  return [...phases, { phase: "other", ns: other }].filter(({ ns }) => ns > 0);
}

function predicted({ predicted: cost }: Explanation): Piece[] {
  const pieces = [
    { phase: "navigate", ns: cost.navigate_ns },
    { phase: "scan", ns: cost.scan_ns },
    { phase: "read", ns: cost.read_ns },
    { phase: "rerank", ns: cost.rerank_ns },
  ];
  return pieces.filter(({ ns }) => ns > 0);
}

function Bar({ pieces, whole, label }: { pieces: Piece[]; whole: number; label: string }) {
  const total = pieces.reduce((sum, { ns }) => sum + ns, 0);
  return (
    <div class="bar-line">
      <span class="bar-label">{label}</span>
      <div class="bar" role="img" aria-label={`${label}: ${pieces.map(({ phase, ns }) => `${phase} ${nanoseconds(ns)}`).join(", ")}`}>
        {pieces.map(({ phase, ns }) => (
          <span
            key={phase}
            class={`phase ${phase}`}
            style={{ width: `${(100 * ns) / whole}%` }}
            title={`${phase} ${nanoseconds(ns)}`}
          />
        ))}
      </div>
      <span class="bar-total">{nanoseconds(total)}</span>
    </div>
  );
}

function Counts({ explanation }: { explanation: Explanation }) {
  const { predicted: cost } = explanation;
  const rows: [string, string, string][] = [
    ["rounds of reads", short(cost.hops), count(explanation.hops)],
    ["reads", short(cost.reads), count(explanation.reads)],
    ["bytes read", bytes(cost.moved_bytes), bytes(explanation.bytes)],
    ["time", nanoseconds(cost.total_ns), nanoseconds(explanation.total_ns)],
  ];
  return (
    <table class="compact">
      <thead>
        <tr>
          <th scope="col">of a query</th>
          <th scope="col" class="number">
            predicted
          </th>
          <th scope="col" class="number">
            actual
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([what, expected, actual]) => (
          <tr key={what}>
            <th scope="row">{what}</th>
            <td class="number">{expected}</td>
            <td class="number">{actual}</td>
          </tr>
        ))}
        <tr>
          <th scope="row">codes scored</th>
          <td />
          <td class="number">{count(explanation.code_distances)}</td>
        </tr>
        <tr>
          <th scope="row">vectors compared</th>
          <td />
          <td class="number">{count(explanation.full_distances)}</td>
        </tr>
      </tbody>
    </table>
  );
}

function Part(props: { name: string; rows: number; explanation: Explanation; whole: number }) {
  const { explanation, whole } = props;
  const { groups_scanned: scanned, groups } = explanation;
  const tier = `read from ${explanation.tier}`;
  return (
    <details class="part">
      <summary>
        <span class="part-name">
          <b class="mono">{props.name}</b>
          <small>
            {count(props.rows)} rows · {explanation.family} · {tier}
            {scanned !== null && groups !== null && ` · ${count(scanned)} of ${count(groups)} groups`}
          </small>
        </span>
        <Bar pieces={predicted(explanation)} whole={whole} label="predicted" />
        <Bar pieces={measured(explanation)} whole={whole} label="actual" />
      </summary>
      <div class="columns">
        <Counts explanation={explanation} />
        <table class="compact">
          <thead>
            <tr>
              <th scope="col">memory while it runs</th>
              <th scope="col" class="number">
                bytes
              </th>
            </tr>
          </thead>
          <tbody>
            {explanation.memory.map(({ part, bytes: size }) => (
              <tr key={part}>
                <th scope="row">{part}</th>
                <td class="number">{bytes(size)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Notes notes={[...explanation.failed.map(({ sentence }) => sentence), ...explanation.notes]} />
    </details>
  );
}

function FilteredPart(props: { name: string; rows: number; filtered: FilteredSegment; whole: number }) {
  const { plan, tier, ...of } = props.filtered;
  const rows: [string, string][] = [
    ["rounds of reads", count(of.hops)],
    ["reads", count(of.reads)],
    ["bytes read", bytes(of.bytes)],
    ["codes scored", count(of.code_distances)],
    ["vectors compared", count(of.full_distances)],
  ];
  return (
    <details class="part">
      <summary>
        <span class="part-name">
          <b class="mono">{props.name}</b>
          <small>
            {count(plan.matches)} of {count(props.rows)} rows match · {plan.family} · plan {plan.plan} · read from {tier}
          </small>
        </span>
        <Bar pieces={measured(of)} whole={props.whole} label="actual" />
      </summary>
      <table class="compact">
        <tbody>
          {rows.map(([what, value]) => (
            <tr key={what}>
              <th scope="row">{what}</th>
              <td class="number">{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Notes notes={of.notes} />
    </details>
  );
}

export function Timeline({ explained }: { explained: ExplainedSearch }) {
  const { segments, memory_rows, memory_ns } = explained;
  const times = segments.flatMap(({ explanation, filtered }) => [
    explanation?.total_ns ?? 0,
    explanation?.predicted.total_ns ?? 0,
    filtered?.total_ns ?? 0,
  ]);
  const whole = Math.max(...times, memory_rows > 0 ? memory_ns : 0, 1);
  return (
    <div class="timeline">
      <ul class="legend" aria-label="Phases">
        {PHASES.map(([phase, what]) => (
          <li key={phase} title={what}>
            <span class={`phase ${phase}`} />
            {phase} <small>{what}</small>
          </li>
        ))}
      </ul>
      {segments.map(
        ({ part, rows, explanation }) =>
          explanation && <Part key={part} name={part} rows={rows} explanation={explanation} whole={whole} />,
      )}
      {segments.map(
        ({ part, rows, filtered }) =>
          filtered && <FilteredPart key={part} name={part} rows={rows} filtered={filtered} whole={whole} />,
      )}
      {memory_rows > 0 && (
        <div class="part memory">
          <span class="part-name">
            <b class="mono">memory</b>
            <small>{count(memory_rows)} rows that are in no segment yet, compared one by one</small>
          </span>
          <Bar pieces={[{ phase: "rerank", ns: memory_ns }]} whole={whole} label="actual" />
        </div>
      )}
      <p class="quiet">
        Each part was searched alone, twice; the second time is shown. A search reads parts at the same time.
      </p>
    </div>
  );
}

export function Plans({ plans }: { plans: PartPlan[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Plans of the parts">
      <table>
        <thead>
          <tr>
            <th scope="col">part</th>
            <th scope="col">family</th>
            <th scope="col" class="number">
              rows
            </th>
            <th scope="col" class="number">
              match
            </th>
            <th scope="col">plan</th>
            <th scope="col" class="number">
              list
            </th>
            <th scope="col">reason</th>
          </tr>
        </thead>
        <tbody>
          {plans.map((plan) => (
            <tr key={plan.part}>
              <th scope="row" class="mono">
                {plan.part}
              </th>
              <td>{plan.family}</td>
              <td class="number">{count(plan.rows)}</td>
              <td class="number">{count(plan.matches)}</td>
              <td>{plan.plan}</td>
              <td class="number">{plan.search_list ? count(plan.search_list) : "–"}</td>
              <td class="reason">{plan.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
