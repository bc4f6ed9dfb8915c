// Everything that the key may see: collections and indexes, their sizes, and how they grow.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, collection, index, names, ready, type CollectionInfo, type IndexInfo } from "../api";
import { Spark } from "../chart";
import { bytes, count } from "../format";
import { useLoad, usePoll } from "../load";
import { Busy, ErrorBox, Figure } from "../parts";
import { linkTo } from "../route";

/** Entries of a page. Each is opened to be described, so not all of thousands are. */
const PAGE = 40;
const AT_ONCE = 4;
const LEAST_POLL_MS = 5000;
/** The fewest milliseconds between two descriptions: in a bucket, each may list the log, which is paid for. */
const DESCRIPTION_MS = 1000;
const MOST_SAMPLES = 120;
/** Rows stored for each live row from which a compaction is worth its work. */
const WASTEFUL = 1.5;

type Described<T> = T | ApiError | undefined;

/** Rows by time, since the page was opened. */
const growth = new Map<string, number[]>();

function note(name: string, rows: number): void {
  growth.set(name, [...(growth.get(name) ?? []), rows].slice(-MOST_SAMPLES));
}

/** Describes entries, some at a time, again and again. */
function useDescribed<T>(all: string[], describe: (name: string) => Promise<T>, seen?: (value: T) => void) {
  const [found, setFound] = useState(new Map<string, Described<T>>());
  const now = useRef(all);
  now.current = all;
  usePoll(
    async () => {
      const next = new Map<string, Described<T>>();
      const waiting = [...now.current];
      const worker = async () => {
        for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
          try {
            const value = await describe(name);
            seen?.(value);
            next.set(name, value);
          } catch (error) {
            next.set(name, error instanceof ApiError ? error : undefined);
          }
          setFound((before) => new Map([...before, ...next]));
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
    },
    Math.max(LEAST_POLL_MS, all.length * DESCRIPTION_MS),
    [all.join("\n")],
  );
  return found;
}

function Health({ info }: { info: Described<CollectionInfo> }) {
  if (info instanceof ApiError) return <span class="bad">{info.kind.replaceAll("_", " ")}</span>;
  if (!info) return <span class="quiet">…</span>;
  if (info.space_amplification >= WASTEFUL) {
    return <span class="fair" title="Deleted rows take space until a compaction">compact</span>;
  }
  return <span class="good">good</span>;
}

function Change({ name }: { name: string }) {
  const samples = growth.get(name) ?? [];
  const [first = 0, last = 0] = [samples[0], samples[samples.length - 1]];
  const change = last - first;
  return (
    <span class="change">
      <Spark values={samples} title={`Rows of ${name} since the page was opened`} />
      {change === 0 ? "±0" : `${change > 0 ? "+" : "−"}${count(Math.abs(change))}`}
    </span>
  );
}

function CollectionRow({ name, info }: { name: string; info: Described<CollectionInfo> }) {
  const known = info instanceof ApiError ? undefined : info;
  const field = known?.schema.vectors[0];
  return (
    <tr>
      <th scope="row">
        <a href={linkTo("collections", name)}>{name}</a>
        {info instanceof ApiError && <small class="bad">{info.message.split("\n")[0]}</small>}
      </th>
      <td class="number">{known && count(known.rows)}</td>
      <td class="number">{known && <Change name={name} />}</td>
      <td class="number">{known && bytes(known.bytes)}</td>
      <td class="number">{known && count(known.segments.length)}</td>
      <td class="number">{known && count(known.rows_in_memory)}</td>
      <td>
        {field && (
          <>
            {field.dim} × {field.element} <small>{field.metric}</small>
            {(known?.schema.vectors.length ?? 0) > 1 && <small> and {(known?.schema.vectors.length ?? 1) - 1} more</small>}
          </>
        )}
      </td>
      <td>
        <Health info={info} />
      </td>
    </tr>
  );
}

function Collections({ all, more }: { all: string[]; more: (() => void) | undefined }) {
  const found = useDescribed(all, (name) => collection(name).describe(), (info) => note(info.name, info.rows));
  const known = [...found.values()].filter((one): one is CollectionInfo => !!one && !(one instanceof ApiError));
  const sum = (of: (info: CollectionInfo) => number) => known.reduce((total, info) => total + of(info), 0);
  return (
    <>
      <dl class="figures">
        <Figure label="Collections" value={count(all.length)} note={more ? "more below" : undefined} />
        <Figure label="Rows" value={count(sum((info) => info.rows))} />
        <Figure label="On disk" value={bytes(sum((info) => info.bytes))} />
        <Figure label="Segments" value={count(sum((info) => info.segments.length))} />
        <Figure label="In memory" value={bytes(sum((info) => info.memory_bytes + info.held_bytes))} />
      </dl>
      <div class="scroll" tabIndex={0} role="region" aria-label="Collections">
        <table class="entries">
          <thead>
            <tr>
              <th scope="col">collection</th>
              <th scope="col" class="number">
                rows
              </th>
              <th scope="col" class="number">
                growth
              </th>
              <th scope="col" class="number">
                bytes
              </th>
              <th scope="col" class="number">
                segments
              </th>
              <th scope="col" class="number">
                rows in memory
              </th>
              <th scope="col">vectors</th>
              <th scope="col">health</th>
            </tr>
          </thead>
          <tbody>
            {all.map((name) => (
              <CollectionRow key={name} name={name} info={found.get(name)} />
            ))}
          </tbody>
        </table>
      </div>
      {more && (
        <button class="plain" onClick={more}>
          Show more
        </button>
      )}
    </>
  );
}

function Indexes({ all, more }: { all: string[]; more: (() => void) | undefined }) {
  const found = useDescribed<IndexInfo>(all, (name) => index(name).describe());
  return (
    <>
      <h2>Indexes</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Indexes">
        <table class="entries">
          <thead>
            <tr>
              <th scope="col">index</th>
              <th scope="col" class="number">
                vectors
              </th>
              <th scope="col">shape</th>
              <th scope="col">family</th>
              <th scope="col">health</th>
            </tr>
          </thead>
          <tbody>
            {all.map((name) => {
              const info = found.get(name);
              const known = info instanceof ApiError ? undefined : info;
              return (
                <tr key={name}>
                  <th scope="row">
                    <a href={linkTo("indexes", name)}>{name}</a>
                    {info instanceof ApiError && <small class="bad">{info.message.split("\n")[0]}</small>}
                  </th>
                  <td class="number">{known && count(known.vectors)}</td>
                  <td>
                    {known && (
                      <>
                        {known.dim} × {known.element} <small>{known.metric}</small>
                      </>
                    )}
                  </td>
                  <td>{known?.family}</td>
                  <td>
                    {info instanceof ApiError ? (
                      <span class="bad">{info.kind.replaceAll("_", " ")}</span>
                    ) : known ? (
                      <span class="good">good</span>
                    ) : (
                      "…"
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {more && (
        <button class="plain" onClick={more}>
          Show more
        </button>
      )}
    </>
  );
}

function ServerHealth() {
  const [state, setState] = useState<"ready" | "not ready" | "…">("…");
  usePoll(
    () =>
      ready().then(
        () => setState("ready"),
        () => setState("not ready"),
      ),
    LEAST_POLL_MS,
    [],
  );
  return (
    <span class={`state ${state === "ready" ? "good" : state === "…" ? "quiet" : "bad"}`} role="status">
      {state === "ready" ? "server ready" : state === "…" ? "" : "server not ready"}
    </span>
  );
}

export function Overview() {
  const [wanted, setWanted] = useState("");
  const [shown, setShown] = useState({ collections: PAGE, indexes: PAGE });
  const listed = useLoad(
    async () => ({ collections: await names("collections"), indexes: await names("indexes") }),
    [],
  );
  useEffect(() => setShown({ collections: PAGE, indexes: PAGE }), [wanted]);
  const chosen = (all: string[] = []) => all.filter((name) => name.toLowerCase().includes(wanted.toLowerCase()));
  const [collections, indexes] = [chosen(listed.value?.collections), chosen(listed.value?.indexes)];
  const more = (kind: "collections" | "indexes", all: string[]) =>
    all.length > shown[kind] ? () => setShown({ ...shown, [kind]: shown[kind] + PAGE }) : undefined;
  const none = listed.value && listed.value.collections.length + listed.value.indexes.length === 0;
  return (
    <main id="content" tabIndex={-1}>
      <div class="title">
        <h1>Overview</h1>
        <ServerHealth />
        <div class="space" />
        {(listed.value?.collections.length ?? 0) + (listed.value?.indexes.length ?? 0) > 8 && (
          <input
            type="search"
            aria-label="Names that contain"
            placeholder="Find a name"
            data-filter
            value={wanted}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
        )}
      </div>
      <ErrorBox error={listed.error} again={listed.again} />
      <Busy on={listed.busy && !listed.value} />
      {none && (
        <p class="empty">
          There is nothing here yet that this key may see. Create a collection over HTTP or with{" "}
          <code>bathyal collection create</code>.
        </p>
      )}
      {collections.length > 0 && (
        <Collections all={collections.slice(0, shown.collections)} more={more("collections", collections)} />
      )}
      {indexes.length > 0 && <Indexes all={indexes.slice(0, shown.indexes)} more={more("indexes", indexes)} />}
      {wanted && collections.length + indexes.length === 0 && <p class="empty">No name contains {wanted}.</p>}
    </main>
  );
}
