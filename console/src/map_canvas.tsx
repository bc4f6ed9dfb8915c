// A map of points on a canvas, with colours, a pointer, and arrow keys.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useWidth } from "./chart";
import { theme, useCell } from "./session";

export interface MapPoint {
  x: number;
  y: number;
  colour: string;
  label: string;
}

const MARGIN = 16;
/** Pixels within which the pointer reaches a point. */
const REACH = 14;

interface Props {
  points: MapPoint[];
  label: string;
  open: (at: number) => void;
}

export function MapCanvas({ points, label, open }: Props) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [chosen, setChosen] = useState<number | null>(null);
  const [scheme, setScheme] = useState(0);
  const shown = useCell(theme);
  const height = Math.max(260, Math.min(620, Math.round(width * 0.62)));

  useEffect(() => setChosen(null), [points]);
  useEffect(() => {
    const media = window.matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setScheme((times) => times + 1);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);

  const xs = points.map(({ x }) => x);
  const ys = points.map(({ y }) => y);
  const [lowX, highX, lowY, highY] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const span = Math.max(highX - lowX, highY - lowY, Number.MIN_VALUE);
  // Both directions have the same scale, so that distances can be compared.
  const scale = Math.min(
    (width - 2 * MARGIN) / Math.max(highX - lowX, span * 1e-6),
    (height - 2 * MARGIN) / Math.max(highY - lowY, span * 1e-6),
  );
  const place = ({ x, y }: MapPoint): [number, number] => [
    width / 2 + (x - (lowX + highX) / 2) * scale,
    height / 2 - (y - (lowY + highY) / 2) * scale,
  ];

  useLayoutEffect(() => {
    const own = canvas.current;
    const pen = own?.getContext("2d");
    if (!own || !pen || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    own.width = width * ratio;
    own.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const colours = getComputedStyle(own);
    const size = points.length > 3000 ? 1.9 : points.length > 800 ? 2.5 : 3.5;
    pen.globalAlpha = points.length > 800 ? 0.75 : 0.9;
    for (const point of points) {
      const [x, y] = place(point);
      pen.fillStyle = point.colour.startsWith("--") ? colours.getPropertyValue(point.colour) : point.colour;
      pen.beginPath();
      pen.arc(x, y, size, 0, 2 * Math.PI);
      pen.fill();
    }
    const marked = chosen === null ? undefined : points[chosen];
    if (marked) {
      const [x, y] = place(marked);
      pen.globalAlpha = 1;
      pen.strokeStyle = colours.getPropertyValue("--text");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, y, size + 4, 0, 2 * Math.PI);
      pen.stroke();
    }
  }, [points, width, height, chosen, shown, scheme]);

  const nearest = (toX: number, toY: number, reach: number): number | null => {
    let [best, far] = [null as number | null, reach * reach];
    points.forEach((point, at) => {
      const [x, y] = place(point);
      const distance = (x - toX) ** 2 + (y - toY) ** 2;
      if (distance < far) [best, far] = [at, distance];
    });
    return best;
  };
  /** Returns the nearest point in a direction: within a right angle around it. */
  const beside = (dx: number, dy: number): number | null => {
    const from = chosen === null ? undefined : points[chosen];
    if (!from) return nearest(width / 2, height / 2, Infinity);
    const [fromX, fromY] = place(from);
    let [best, far] = [chosen, Infinity];
    points.forEach((point, at) => {
      const [x, y] = place(point);
      const along = (x - fromX) * dx + (y - fromY) * dy;
      const across = Math.abs((x - fromX) * dy) + Math.abs((y - fromY) * dx);
      const distance = along + across;
      if (at !== chosen && along > 0.01 && across <= along && distance < far) [best, far] = [at, distance];
    });
    return best;
  };
  const press = (event: KeyboardEvent) => {
    const arrows: Record<string, [number, number]> = {
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
    };
    const arrow = arrows[event.key];
    if (arrow) setChosen(beside(...arrow));
    else if (event.key === "Enter" && chosen !== null) open(chosen);
    else return;
    event.preventDefault();
  };
  const marked = chosen === null ? undefined : points[chosen];
  const [markedX, markedY] = marked ? place(marked) : [0, 0];
  return (
    <div class="map" ref={box}>
      <canvas
        ref={canvas}
        role="application"
        aria-roledescription="map"
        aria-label={`${label}. Arrow keys go from point to point, Enter opens the row.`}
        tabIndex={0}
        style={{ height: `${height}px` }}
        onPointerMove={(event) => setChosen(nearest(event.offsetX, event.offsetY, REACH))}
        onPointerLeave={() => setChosen(null)}
        onClick={(event) => {
          const at = nearest(event.offsetX, event.offsetY, REACH);
          if (at !== null) open(at);
        }}
        onKeyDown={press}
      />
      {marked && (
        <div
          class={`tip ${markedX > width / 2 ? "left" : ""}`}
          aria-hidden="true"
          style={{ left: `${markedX}px`, top: `${markedY}px` }}
        >
          {marked.label}
        </div>
      )}
      <p class="hidden" role="status">
        {marked?.label}
      </p>
    </div>
  );
}
