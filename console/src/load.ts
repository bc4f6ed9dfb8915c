// Loading from components: one answer at a time, and none after the component is gone.

type DependencyList = readonly unknown[];
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";

export interface Loaded<T> {
  value: T | undefined;
  error: ApiError | undefined;
  busy: boolean;
  again: () => void;
}

function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError("invalid_argument", error instanceof Error ? error.message : String(error), 0);
}

/** Loads when `depends` changes. The former value stays until the next one is there. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, depends: DependencyList): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "again">>({
    value: undefined,
    error: undefined,
    busy: true,
  });
  const [times, setTimes] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    setState((before) => ({ ...before, busy: true }));
    load(abort.signal).then(
      (value) => abort.signal.aborted || setState({ value, error: undefined, busy: false }),
      (error: unknown) =>
        abort.signal.aborted ||
        setState((before) => ({ value: before.value, error: asApiError(error), busy: false })),
    );
    return () => abort.abort();
  }, [...depends, times]);
  const again = useCallback(() => setTimes((before) => before + 1), []);
  return { ...state, again };
}

export interface Action<T, A extends unknown[]> {
  value: T | undefined;
  error: ApiError | undefined;
  busy: boolean;
  run: (...given: A) => Promise<T | undefined>;
  forget: () => void;
}

/** Runs on demand. A later run replaces an earlier one whose answer is not there yet. */
export function useAction<T, A extends unknown[]>(act: (...given: A) => Promise<T>): Action<T, A> {
  const [state, setState] = useState<{ value?: T; error?: ApiError; busy: boolean }>({ busy: false });
  const latest = useRef(0);
  useEffect(() => () => void (latest.current = -1), []);
  const run = async (...given: A) => {
    const own = ++latest.current;
    setState(({ value }) => ({ ...(value === undefined ? {} : { value }), busy: true }));
    try {
      const value = await act(...given);
      if (own === latest.current) setState({ value, busy: false });
      return value;
    } catch (error) {
      if (own === latest.current) setState({ error: asApiError(error), busy: false });
      return undefined;
    }
  };
  const forget = useCallback(() => setState({ busy: false }), []);
  return { value: state.value, error: state.error, busy: state.busy, run, forget };
}

/** Calls `tick` now and every `interval` milliseconds while the page is visible. */
export function usePoll(tick: () => Promise<void>, interval: number, depends: DependencyList): void {
  useEffect(() => {
    let timer = 0;
    let gone = false;
    const round = async () => {
      if (!document.hidden) await tick().catch(() => undefined);
      if (!gone) timer = window.setTimeout(round, interval);
    };
    void round();
    const seen = () => {
      if (document.hidden || gone) return;
      window.clearTimeout(timer);
      void round();
    };
    document.addEventListener("visibilitychange", seen);
    return () => {
      gone = true;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, depends);
}
