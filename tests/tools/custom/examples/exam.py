#!/usr/bin/env python3
"""The tool of contract.py in Python: isthmus-tool/1, one process a call."""
import json
import os
import signal
import subprocess
import sys

DOES = ["echo", "throw", "update", "crash", "hang", "twice", "noise", "exec", "silent", "big", "ask", "cwd", "tell", "emit", "before"]
if os.environ["TOOLBOX_ACTION"] == "describe":
    print(json.dumps({"protocol": "isthmus-tool/1", "lifetime": "call", "tools": [{
        "name": "exam", "label": "Exam", "description": "What a contract asks",
        "parameters": {"type": "object", "required": ["do"], "additionalProperties": False,
                       "properties": {"do": {"type": "string", "enum": DOES}, "text": {"type": "string"},
                                      "count": {"type": "integer"}}}}]}))
    sys.exit()

call = json.loads(sys.stdin.readline())
does, words = call["params"]["do"], call["params"].get("text", "")


def say(kind, **rest):
    print(json.dumps({"type": kind, "id": call["id"], **rest}), flush=True)


def text(words):
    return [{"type": "text", "text": words}]


def result(words, **rest):
    say("result", content=text(words), **rest)


if does == "echo":
    result(words, details={"secret": "kept apart"})
elif does == "throw":
    say("error", message="no luck with " + words)
elif does == "update":
    for number in "123":
        say("update", content=text("step " + number))
    result("all steps")
elif does == "crash":
    print("it broke", file=sys.stderr)
    sys.exit(3)
elif does == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.run(["sleep", words], check=False, start_new_session=True)
elif does == "twice":
    result("first")
    result("second")
elif does == "noise":
    sys.stdout.buffer.write(b'no JSON\n\xff\xfe\n{"type":"unknown"}\n[1]\n')
    print("harmless", file=sys.stderr)
    result("heard")
elif does == "exec":
    say("exec", ask="e1", argv=["printf", "%s", "$HOME and *"], timeout=5000)
    result(json.loads(sys.stdin.readline())["stdout"])
elif does == "big":
    result(("x" * 99 + "\n") * 30000)
elif does == "ask":
    say("ui_request", ask="u1", method="select", title="Which?", options=["red", "blue"])
    result("chose %s in %d" % (json.loads(sys.stdin.readline()).get("value", ""), os.getpid()))
elif does == "cwd":
    result(os.getcwd())
elif does == "tell":
    say("message", custom_type="note", content="by the way", display=True)
    result("told")
elif does == "emit":
    say("emit", channel="exam:done", data={"n": 1})
    result("emitted")
elif does == "before":
    result(str(len(call["entries"])))
