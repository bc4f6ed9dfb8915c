// An index: search, recall, map and counters.

import { useEffect, useState } from "preact/hooks";
import { index, type IndexInfo } from "../api";
import { AuditPanel } from "../audit_panel";
import { AuditedOverTime, useLiveAudit } from "../audited";
import { count, nanoseconds, plural, short } from "../format";
import { useAction, useLoad } from "../load";
import { Busy, ErrorBox, Figure, Notes } from "../parts";
import { NO_QUERY, QueryForm, vectorOf, type QueryState } from "../query_form";
import { RecallChart } from "../recall_chart";
import { linkTo, type IndexTab } from "../route";
import { Timeline } from "../timeline";
import { IndexLiveView } from "./live";
import { IndexMapView } from "./map";

function IndexSearch({ info, like }: { info: IndexInfo; like: string | null }) {
  const [query, setQuery] = useState<QueryState>({ ...NO_QUERY, row: like ?? "" });
  const [k, setK] = useState("10");
  const [recall, setRecall] = useState("0.95");
  const search = useAction(async (given: QueryState) => {
    let vector: number[];
    if (given.source === "row") {
      if (!/^\d+$/.test(given.row.trim())) throw new Error("an id is a whole number");
      vector = (await index(info.name).get(Number(given.row))).vectors[0] ?? [];
    } else {
      vector = await vectorOf(given);
    }
    const asked = { vector, k: Number(k), recall: Number(recall) };
    const started = performance.now();
    const answer = await index(info.name).search(asked);
    return { asked, answer, milliseconds: performance.now() - started };
  });
  const explain = useAction((asked: object) => index(info.name).explain(asked));
  const run = (given = query) => {
    explain.forget();
    void search.run(given);
  };
  useEffect(() => {
    if (like === null) return;
    const next = { ...NO_QUERY, row: like };
    setQuery(next);
    run(next);
  }, [like, info.name]);
  const found = search.value?.answer.results[0]?.neighbors ?? [];
  return (
    <section class="search">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          run();
        }}
      >
        <div class="query-line">
          <QueryForm query={query} change={setQuery} submit={run} rowName="By id" rowLabel="Id of a vector (a number)" dim={info.dim} />
          <div class="options">
            <label class="field narrow">
              <span>Neighbours (k)</span>
              <input type="number" min={1} value={k} onInput={(event) => setK(event.currentTarget.value)} />
            </label>
            <label class="field narrow">
              <span>Recall</span>
              <input
                type="number"
                min={0.01}
                max={1}
                step={0.01}
                value={recall}
                onInput={(event) => setRecall(event.currentTarget.value)}
              />
            </label>
            <button>Search</button>
          </div>
        </div>
      </form>
      <ErrorBox error={search.error} />
      <Busy on={search.busy} what="Searching" />
      {search.value && (
        <>
          <p class="quiet" role="status">
            {plural(found.length, "neighbour")} in {nanoseconds(search.value.milliseconds * 1e6)} with the network
          </p>
          <Notes notes={search.value.answer.notes} />
          <div class="scroll tight" tabIndex={0} role="region" aria-label="Neighbours, nearest first">
            <table>
              <thead>
                <tr>
                  <th scope="col" class="number">
                    id
                  </th>
                  <th scope="col" class="number">
                    distance
                  </th>
                  <th scope="col">
                    <span class="hidden">more</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {found.map((one) => (
                  <tr key={String(one.id)}>
                    <th scope="row" class="number mono">
                      {String(one.id)}
                    </th>
                    <td class="number">{short(one.distance ?? 0, 5)}</td>
                    <td>
                      <a href={linkTo("indexes", info.name, "search", `like=${one.id}`)}>Search like this one</a>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <h2>How it was answered</h2>
          {!explain.value && (
            <button disabled={explain.busy} onClick={() => search.value && void explain.run(search.value.asked)}>
              {explain.busy ? "Explaining …" : "Explain: time each phase"}
            </button>
          )}
          <ErrorBox error={explain.error} />
          {explain.value && (
            <Timeline
              explained={{
                segments: [{ part: info.name, rows: info.vectors, explanation: explain.value }],
                memory_rows: 0,
                memory_ns: 0,
              }}
            />
          )}
        </>
      )}
    </section>
  );
}

function IndexRecall({ info }: { info: IndexInfo }) {
  const [k, setK] = useState(10);
  const found = useLiveAudit(info.name, async () => (await index(info.name).stats()).audit);
  const { value, error, busy, again } = useLoad(() => index(info.name).recall({ k }), [info.name, k]);
  return (
    <section>
      <div class="options">
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
      <ErrorBox error={error} again={again} />
      <Busy on={busy && !value} />
      {value && <RecallChart curves={value.curves.map((curve) => ({ name: curve.calibration, curve }))} />}
      <AuditPanel
        name={info.name}
        rows={info.vectors}
        what="vectors of the index"
        audit={(queries, recalls, seed) => index(info.name).audit({ k, queries, recalls, seed })}
      />
      <AuditedOverTime found={found} />
    </section>
  );
}

export function IndexPage(props: { name: string; tab: IndexTab; query: URLSearchParams }) {
  const { name, tab } = props;
  const { value: info, error, busy, again } = useLoad(() => index(name).describe(), [name]);
  return (
    <>
      <ErrorBox error={error} again={again} />
      <Busy on={busy && !info} />
      {info && (
        <dl class="figures small">
          <Figure label="Vectors" value={count(info.vectors)} />
          <Figure label="Shape" value={`${info.dim} × ${info.element}`} note={info.metric} />
          <Figure label="Family" value={info.family} />
        </dl>
      )}
      {info && tab === "search" && <IndexSearch info={info} like={props.query.get("like")} />}
      {info && tab === "recall" && <IndexRecall info={info} />}
      {info && tab === "map" && <IndexMapView info={info} />}
      {info && tab === "live" && <IndexLiveView name={name} />}
    </>
  );
}
