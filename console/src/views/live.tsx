// Counters as they move: of a collection, of an index, and of the server.

import { useRef, useState } from "preact/hooks";
import { collection, index, serverStats, type ApiError, type ServerStats } from "../api";
import { LineChart, type Line } from "../chart";
import { bytes, count, nanoseconds, plural, seconds, short } from "../format";
import { usePoll } from "../load";
import { Busy, ErrorBox, Figure } from "../parts";

const POLL_MS = 2000;
/** Samples that are kept: ten minutes. */
const MOST_SAMPLES = 300;

type Counters = Record<string, number>;
type Sample = { time: number; counters: Counters };

/** Polls counters, and keeps the last samples. */
function useSamples<T>(load: () => Promise<T>, counters: (value: T) => Counters, depends: string[]) {
  const samples = useRef<Sample[]>([]);
  const [value, setValue] = useState<T | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  usePoll(
    async () => {
      try {
        const now = await load();
        samples.current = [...samples.current, { time: Date.now(), counters: counters(now) }].slice(-MOST_SAMPLES);
        setValue(now);
        setError(undefined);
      } catch (failure) {
        setError(failure as ApiError);
      }
    },
    POLL_MS,
    depends,
  );
  return { samples: samples.current, value, error };
}

/** The change of a counter each second, or of one counter for each unit of another. */
function rates(samples: Sample[], name: string, per?: string): [number, number][] {
  const points: [number, number][] = [];
  samples.forEach((sample, at) => {
    const before = samples[at - 1];
    if (!before) return;
    const change = (sample.counters[name] ?? 0) - (before.counters[name] ?? 0);
    const unit = per
      ? (sample.counters[per] ?? 0) - (before.counters[per] ?? 0)
      : (sample.time - before.time) / 1000;
    if (unit > 0 && change >= 0) points.push([sample.time, change / unit]);
  });
  return points;
}

function levels(samples: Sample[], name: string): [number, number][] {
  return samples.map(({ time, counters }) => [time, counters[name] ?? 0]);
}

function Moving(props: { title: string; lines: Line[]; y?: (value: number) => string }) {
  return (
    <section class="moving">
      <h2>{props.title}</h2>
      <LineChart
        title={props.title}
        lines={props.lines}
        time
        y={props.y ?? ((value) => short(value))}
        xName=""
        yName=""
        low={0}
        height={180}
      />
    </section>
  );
}

export function LiveView({ name }: { name: string }) {
  const { samples, value, error } = useSamples(
    () => collection(name).stats(),
    (stats) => ({
      queries: stats.queries,
      search_seconds: stats.search_seconds,
      reads: stats.reads,
      read_bytes: stats.read_bytes,
      batches: stats.sequence,
      rows: stats.rows,
      rows_in_memory: stats.rows_in_memory,
    }),
    [name],
  );
  return (
    <section>
      <ErrorBox error={error} />
      {!value && !error && <Busy on />}
      {value && (
        <>
          <dl class="figures">
            <Figure label="Queries" value={count(value.queries)} note={`in ${plural(value.searches, "batch", "batches")}`} />
            <Figure label="Failed" value={count(value.errors)} />
            <Figure label="Reads" value={count(value.reads)} note={bytes(value.read_bytes)} />
            <Figure label="Codes scored" value={count(value.code_distances)} />
            <Figure label="Vectors compared" value={count(value.full_distances)} />
            <Figure
              label="Mean time of a batch"
              value={value.searches ? seconds(value.search_seconds / value.searches) : "–"}
            />
            <Figure label="Batches written" value={count(value.sequence)} />
          </dl>
          <p class="quiet">Since the server opened the collection. The charts begin with this page.</p>
          <div class="charts">
            <Moving title="Queries each second" lines={[{ name: "queries", points: rates(samples, "queries") }]} />
            <Moving
              title="Time of search for each query"
              lines={[{ name: "time", points: rates(samples, "search_seconds", "queries") }]}
              y={seconds}
            />
            <Moving
              title="Reads each second"
              lines={[{ name: "reads", points: rates(samples, "reads") }]}
            />
            <Moving
              title="Rows"
              lines={[
                { name: "all", points: levels(samples, "rows") },
                { name: "in memory", points: levels(samples, "rows_in_memory") },
              ]}
              y={count}
            />
          </div>
        </>
      )}
    </section>
  );
}

export function IndexLiveView({ name }: { name: string }) {
  const { samples, value, error } = useSamples(
    () => index(name).stats(),
    (stats) => ({ queries: stats.queries, latency: stats.latency_seconds, reads: stats.reads }),
    [name],
  );
  return (
    <section>
      <ErrorBox error={error} />
      {!value && !error && <Busy on />}
      {value && (
        <>
          <dl class="figures">
            <Figure label="Queries" value={count(value.queries)} />
            <Figure label="Failed batches" value={count(value.errors)} />
            <Figure label="Reads" value={count(value.reads)} note={bytes(value.bytes)} />
            <Figure label="Rounds of reads" value={count(value.hops)} />
            <Figure label="Memory" value={bytes(value.dram_bytes)} note={value.place} />
            <Figure
              label="Mean time of a query"
              value={value.queries ? seconds(value.latency_seconds / value.queries) : "–"}
            />
          </dl>
          <p class="quiet">Since the server opened the index. The charts begin with this page.</p>
          <div class="charts">
            <Moving title="Queries each second" lines={[{ name: "queries", points: rates(samples, "queries") }]} />
            <Moving
              title="Time of a query"
              lines={[{ name: "time", points: rates(samples, "latency", "queries") }]}
              y={seconds}
            />
            <Moving title="Reads each second" lines={[{ name: "reads", points: rates(samples, "reads") }]} />
          </div>
        </>
      )}
    </section>
  );
}

function totals(stats: ServerStats): Counters {
  const sum = (of: (one: ServerStats["requests"][number]) => number) =>
    stats.requests.reduce((total, one) => total + of(one), 0);
  return {
    requests: sum((one) => one.requests),
    seconds: sum((one) => one.seconds),
    refused: sum((one) => (one.status >= 400 ? one.requests : 0)),
    in_flight: stats.in_flight,
  };
}

export function ServerView() {
  const { samples, value, error } = useSamples(serverStats, totals, []);
  return (
    <main id="content" tabIndex={-1}>
      <h1>Server</h1>
      <ErrorBox error={error} />
      {!value && !error && <Busy on />}
      {value && (
        <>
          <dl class="figures">
            <Figure label="Requests" value={count(totals(value).requests ?? 0)} />
            <Figure label="Refused" value={count(totals(value).refused ?? 0)} />
            <Figure label="In flight" value={count(value.in_flight)} />
            <Figure label="Open collections" value={count(value.open_collections)} />
            <Figure label="Open indexes" value={count(value.open_indexes)} />
          </dl>
          <div class="charts">
            <Moving
              title="Requests each second"
              lines={[
                { name: "all", points: rates(samples, "requests") },
                { name: "refused", points: rates(samples, "refused") },
              ]}
            />
            <Moving
              title="Time of a request"
              lines={[{ name: "time", points: rates(samples, "seconds", "requests") }]}
              y={seconds}
            />
          </div>
          <h2>By operation</h2>
          <div class="scroll" tabIndex={0} role="region" aria-label="Requests by operation">
            <table>
              <thead>
                <tr>
                  <th scope="col">operation</th>
                  <th scope="col" class="number">
                    status
                  </th>
                  <th scope="col" class="number">
                    requests
                  </th>
                  <th scope="col" class="number">
                    mean time
                  </th>
                </tr>
              </thead>
              <tbody>
                {[...value.requests]
                  .sort((a, b) => b.requests - a.requests)
                  .map((one) => (
                    <tr key={`${one.method} ${one.path} ${one.status}`}>
                      <th scope="row" class="mono">
                        {one.method} {one.path}
                      </th>
                      <td class={`number ${one.status >= 400 ? "bad" : ""}`}>{one.status}</td>
                      <td class="number">{count(one.requests)}</td>
                      <td class="number">{nanoseconds((1e9 * one.seconds) / one.requests)}</td>
                    </tr>
                  ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </main>
  );
}
