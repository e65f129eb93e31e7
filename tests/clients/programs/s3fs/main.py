"""s3fs as a client of the tests: answers one JSON object a line, as Program in tests/clients/client.py describes."""

import json
import sys
import traceback

import calls

KINDS = {FileNotFoundError: "missing", FileExistsError: "precondition", PermissionError: "denied"}


def answer(call, parameters):
    try:
        return {"result": getattr(calls, call)(**parameters)}
    except Exception as error:
        return {"refused": KINDS.get(type(error), "other"), "detail": traceback.format_exc()}


for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps(answer(request.pop("call"), request)), flush=True)
