// Requests to the server, and the types of its answers. The server's /v1/openapi.json describes them.

import { key, setKey } from "./session";

export type Id = number | string;
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Row = { id: Id; distance?: number } & { [name: string]: Json | undefined };

export interface Me {
  name: string;
  right: "read" | "write";
  prefix: string;
  version: string;
}

export interface VectorField {
  name: string;
  dim: number;
  element: string;
  metric: string;
  family?: string;
}

export interface Column {
  name: string;
  type: string;
}

export interface Schema {
  id: "u64" | "string";
  vectors: VectorField[];
  columns?: Column[];
}

export interface Segment {
  name: string;
  rows: number;
  deleted: number;
  bytes: number;
}

export interface CollectionInfo {
  name: string;
  schema: Schema;
  version: number;
  sequence: number;
  rows: number;
  rows_in_memory: number;
  memory_bytes: number;
  held_bytes: number;
  bytes: number;
  space_amplification: number;
  segments: Segment[];
  calibrations?: { name: string; field: string; queries: number; measured_at: number; segments: number }[];
}

export interface WatchedRecall {
  asked: number | null;
  found?: number;
  low?: number;
  high?: number;
  queries?: number;
  missed: boolean;
  audited: number;
}

export interface LiveAudit {
  share: number;
  sampled: number;
  dropped: number;
  recalls: WatchedRecall[];
}

export interface CollectionStats extends CollectionInfo {
  searches: number;
  queries: number;
  errors: number;
  reads: number;
  read_bytes: number;
  code_distances: number;
  full_distances: number;
  search_seconds: number;
  audit?: LiveAudit;
}

export interface IndexInfo {
  name: string;
  family: string;
  vectors: number;
  dim: number;
  element: string;
  metric: string;
}

export interface IndexStats {
  vectors: number;
  dram_bytes: number;
  queries: number;
  errors: number;
  hops: number;
  reads: number;
  bytes: number;
  code_distances: number;
  full_distances: number;
  place: string;
  latency_seconds: number;
  audit?: LiveAudit;
}

export interface ServerStats {
  in_flight: number;
  open_collections: number;
  open_indexes: number;
  requests: { method: string; path: string; status: number; requests: number; seconds: number }[];
}

export interface PartPlan {
  part: string;
  family: string;
  rows: number;
  matches: number;
  plan: string;
  reason: string;
  search_list: number;
}

export interface SearchAnswer {
  results: { query: number; neighbors: Row[] }[];
  k: number;
  matches: number;
  plans?: PartPlan[];
  notes: string[];
}

export interface Explanation {
  family: string;
  tier: string;
  k: number;
  search_list: number;
  groups_scanned: number | null;
  groups: number | null;
  hops: number;
  reads: number;
  bytes: number;
  code_distances: number;
  full_distances: number;
  predicted: {
    hops: number;
    reads: number;
    moved_bytes: number;
    total_ns: number;
    navigate_ns: number;
    scan_ns: number;
    read_ns: number;
    rerank_ns: number;
  };
  failed: { assumption: string; sentence: string }[];
  total_ns: number;
  phases: { phase: string; ns: number }[];
  memory: { part: string; bytes: number }[];
  notes: string[];
}

/** A search among the rows of a segment that match a filter. */
export interface FilteredSegment {
  plan: PartPlan;
  tier: string;
  hops: number;
  reads: number;
  bytes: number;
  code_distances: number;
  full_distances: number;
  total_ns: number;
  phases: { phase: string; ns: number }[];
  notes: string[];
}

/** One query in one segment: with its explanation, or with a filter as `filtered`. */
export interface ExplainedSegment {
  part: string;
  rows: number;
  explanation?: Explanation;
  filtered?: FilteredSegment;
}

export interface ExplainedSearch {
  segments: ExplainedSegment[];
  memory_rows: number;
  memory_ns: number;
}

export interface CurvePoint {
  recall: number;
  probes: number;
  search_list: number;
  prune: number;
  predicted_ns: number;
}

export interface RecallCurve {
  calibration: string;
  k: number;
  queries: number | null;
  measured_at: number | null;
  points: CurvePoint[];
}

export interface SegmentCurves {
  part: string;
  family: string;
  rows: number;
  curves: RecallCurve[];
}

export interface AuditReport {
  queries: number;
  k: number;
  recalls: {
    asked: number;
    found: number;
    low: number;
    high: number;
    poor: number;
    reached: boolean;
    search_list: number;
    notes: string[];
  }[];
  notes: string[];
  seconds: number;
}

export interface MapAnswer {
  points: [number, number][];
  rows?: Row[];
  ids?: number[];
  of: number;
  shares: [number, number];
}

/** A request that was not answered, with the words of the server. */
export class ApiError extends Error {
  constructor(
    readonly kind: string,
    message: string,
    readonly status: number,
    readonly position?: number,
  ) {
    super(message);
  }
}

/** Numbers beyond 2^53 lose digits in JavaScript. Ids of rows may be as large, so they are kept as text. */
function parse(text: string): unknown {
  if (!/[0-9]{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text.replace(/("(?:id|next)":\s*)([0-9]{16,20})(?=[,}\s])/g, '$1"\\u0000$2"'));
}

/** Returns the text of an id, as its user knows it. */
export function idText(id: Id): string {
  return typeof id === "string" && id.startsWith("\0") ? id.slice(1) : String(id);
}

/** Returns the id that a user has typed, for a collection of this kind of ids. */
export function idOf(text: string, kind: "u64" | "string"): Id {
  if (kind === "string") return text;
  const digits = text.trim();
  if (!/^[0-9]{1,20}$/.test(digits)) throw new Error(`${text || "nothing"} is no id: ids are whole numbers`);
  return digits.length < 16 ? Number(digits) : `\0${digits}`;
}

function body(value: unknown): string {
  return JSON.stringify(value).replace(/"\\u0000([0-9]{1,20})"/g, "$1");
}

async function send<T>(method: string, path: string, content?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { Authorization: `Bearer ${key.value ?? ""}` };
  if (content !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      cache: "no-store",
      ...(content === undefined ? {} : { body: body(content) }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (signal?.aborted) throw new ApiError("cancelled", "cancelled", 0);
    throw new ApiError("unreachable", "the server does not answer; it may have been stopped", 0);
  }
  const text = await response.text();
  let answer: unknown;
  try {
    answer = parse(text);
  } catch {
    throw new ApiError("internal", `the server sent no JSON (status ${response.status})`, response.status);
  }
  if (response.ok) return answer as T;
  const error = (answer as { error?: { kind?: string; message?: string; position?: number } }).error;
  const refusal = new ApiError(
    error?.kind ?? "internal",
    error?.message ?? `status ${response.status}`,
    response.status,
    error?.position,
  );
  if (response.status === 401) {
    lastRefusal = refusal.message;
    setKey(null);
  }
  throw refusal;
}

/** Why the last key was refused, for the page that asks for one. */
export let lastRefusal: string | null = null;

export function forgetRefusal(): void {
  lastRefusal = null;
}

const at = (kind: "collections" | "indexes", name: string) => `/v1/${kind}/${encodeURIComponent(name)}`;

export async function names(kind: "collections" | "indexes"): Promise<string[]> {
  const all: string[] = [];
  let after = "";
  do {
    const query = after ? `?after=${encodeURIComponent(after)}` : "";
    const page = await send<{ names: string[]; next?: string }>("GET", `/v1/${kind}${query}`);
    all.push(...page.names);
    after = page.next ?? "";
  } while (after);
  return all;
}

export const me = () => send<Me>("GET", "/v1/me");
export const serverStats = () => send<ServerStats>("GET", "/v1/stats");
export const ready = () => send<{ status: string }>("GET", "/health/ready");

export function collection(name: string) {
  const path = at("collections", name);
  const post = <T>(operation: string, content: unknown, signal?: AbortSignal) =>
    send<T>("POST", `${path}/${operation}`, content, signal);
  return {
    describe: () => send<CollectionInfo>("GET", path),
    stats: () => send<CollectionStats>("GET", `${path}/stats`),
    scan: (content: object, signal?: AbortSignal) =>
      post<{ rows: Row[]; next?: Id }>("scan", content, signal),
    get: (id: Id, vectors: string[]) => post<{ rows: Row[] }>("get", { ids: [id], vectors }),
    count: (filter: string, signal?: AbortSignal) =>
      post<{ count: number }>("count", filter ? { filter } : {}, signal),
    search: (content: object, signal?: AbortSignal) => post<SearchAnswer>("search", content, signal),
    explain: (content: object) => post<ExplainedSearch>("explain", content),
    recall: (content: object) => post<{ segments: SegmentCurves[] }>("recall", content),
    audit: (content: object) => post<AuditReport>("audit", content),
    map: (content: object, signal?: AbortSignal) => post<MapAnswer>("map", content, signal),
    remove: (ids: Id[]) => post<{ deleted: number }>("delete", { ids }),
    flush: () => post<object>("flush", {}),
    compact: () => post<object>("compact", {}),
    verify: () => post<{ faults: string[] }>("verify", {}),
  };
}

export function index(name: string) {
  const path = at("indexes", name);
  const post = <T>(operation: string, content: unknown, signal?: AbortSignal) =>
    send<T>("POST", `${path}/${operation}`, content, signal);
  return {
    describe: () => send<IndexInfo>("GET", path),
    stats: () => send<IndexStats>("GET", `${path}/stats`),
    get: (id: number) => post<{ vectors: number[][] }>("get", { ids: [id] }),
    search: (content: object, signal?: AbortSignal) => post<SearchAnswer>("search", content, signal),
    audit: (content: object) => post<AuditReport>("audit", content),
    explain: (content: object) => post<Explanation>("explain", content),
    recall: (content: object) => post<{ curves: RecallCurve[] }>("recall", content),
    map: (content: object, signal?: AbortSignal) => post<MapAnswer>("map", content, signal),
  };
}

