"""A small web server around a system that is a library: ``POST /search`` with ``vector`` and ``share``.

python -m bathyal_bench.served.thin PACKAGE WORK EFFORT PORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bathyal_bench.changing.systems import System, named


def application(system: System) -> Starlette:
    """Returns a service that searches an opened system. Requests run in threads, so that they overlap as far
    as the library lets them.
    """

    async def search(request: Request) -> JSONResponse:
        given = json.loads(await request.body())
        query = np.array(given["vector"], np.float32)
        ids = await run_in_threadpool(system.search_one, query, given["share"])
        return JSONResponse({"ids": ids.tolist()})

    return Starlette(routes=[Route("/search", search, methods=["POST"])])


def main() -> None:
    """Serves until the process is ended."""
    package, work, effort, port = sys.argv[1:]
    system = named(package)(Path(work))
    given = json.loads(effort)
    system.effort = tuple(given) if isinstance(given, list) else given
    system.open()
    uvicorn.run(application(system), host="127.0.0.1", port=int(port), log_level="error", access_log=False)


if __name__ == "__main__":
    main()
