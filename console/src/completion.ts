// Completion of filters: columns, operators and words, by what stands before the cursor.

import type { Column, Schema } from "./api";

export interface Suggestion {
  /** Text that replaces the word before the cursor. */
  text: string;
  hint: string;
}

export interface Completion {
  /** Characters before the cursor that a suggestion replaces. */
  typed: number;
  suggestions: Suggestion[];
}

const WORD = /[\p{L}\p{N}_.]*$/u;
const MOST = 12;

/** Returns a name as a filter writes it: in quotes unless it is a plain word. */
export function quotedName(name: string): string {
  const reserved = /^(and|or|not|in|is|null|true|false|between|like)$/i;
  return /^[\p{L}_][\p{L}\p{N}_.]*$/u.test(name) && !reserved.test(name)
    ? name
    : `"${name.replaceAll('"', '""')}"`;
}

const words = (list: [string, string][]): Suggestion[] => list.map(([text, hint]) => ({ text, hint }));

function operators(type: string): Suggestion[] {
  const nulls: [string, string][] = [
    ["is null", "has no value"],
    ["is not null", "has a value"],
  ];
  if (type.startsWith("list<") || type === "json") {
    return words([["= ", "has the element"], ["in (", "has one of"], ...nulls]);
  }
  if (type === "bool") return words([["= true", ""], ["= false", ""], ...nulls]);
  const equal: [string, string][] = [
    ["= ", "equal"],
    ["!= ", "not equal"],
    ["in (", "one of several"],
  ];
  const order: [string, string][] = [
    [">= ", "at least"],
    ["<= ", "at most"],
    ["> ", "more than"],
    ["< ", "less than"],
    ["between ", "from … to …, both included"],
  ];
  const text: [string, string][] = type === "string" ? [["like '", "begins with …%"]] : [];
  return words([...equal, ...order, ...text, ...nulls]);
}

function starts(columns: Column[]): Suggestion[] {
  const names = columns.map(({ name, type }) => ({ text: `${quotedName(name)} `, hint: type }));
  const functions: [string, string][] = [["not ", "negates"]];
  if (columns.some(({ type }) => type === "string")) functions.push(["starts_with(", "a string begins with"]);
  if (columns.some(({ type }) => type.startsWith("list<"))) {
    functions.push(["contains(", "a list has a value"], ["contains_any(", "a list has one of"]);
  }
  return [...names, ...words(functions)];
}

const JOINS = words([
  ["and ", "both"],
  ["or ", "either"],
]);

/** Returns what may follow in a filter of these columns. */
export function complete(before: string, schema: Schema): Completion {
  const columns: Column[] = [...(schema.columns ?? []), { name: "id", type: schema.id }];
  const quotes = before.replace(/''/g, "").split("'").length - 1;
  if (quotes % 2 === 1) return { typed: 0, suggestions: [] };
  const typed = WORD.exec(before)?.[0] ?? "";
  const rest = before.slice(0, before.length - typed.length).trimEnd();
  const last = /("[^"]*"|`[^`]*`|'(?:[^']|'')*'|[\p{L}\p{N}_.-]+|[<>=!]+|[(),&|])$/u.exec(rest)?.[0] ?? "";
  const column = columns.find(({ name }) => name === last || quotedName(name) === last);
  const matching = (all: Suggestion[]): Completion => {
    const low = typed.toLowerCase();
    const found = all.filter(({ text }) => text.toLowerCase().replace(/^"/, "").startsWith(low));
    return { typed: typed.length, suggestions: found.slice(0, MOST) };
  };
  if (last === "" || /^(and|or|not|&&|\|\||!|\()$/i.test(last)) {
    const list = /\b(in|contains|contains_any|contains_all|starts_with|exists)\s*\($/i.exec(rest);
    if (list && /^in$/i.test(list[1] ?? "")) return { typed: 0, suggestions: [] };
    return matching(starts(columns));
  }
  if (column) return matching(operators(column.type));
  if (/^(<|>|<=|>=|=|==|!=|<>|in|like|between|is|,)$/i.test(last)) return { typed: 0, suggestions: [] };
  return matching(JOINS);
}
