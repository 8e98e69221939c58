#!/usr/bin/python3
"""A scripted model on loopback that speaks what six agents ask: Anthropic messages, OpenAI chat
completions and responses, Gemini.  It calls the agent's own shell tool with each command of a
script in turn, then ends.  What the tool answered goes to the log, a JSON object a line.  With
TOOL, it calls that one of isthmus's in place of the shell; the commands are its arguments as JSON.

    model.py PORT_FILE LOG COMMAND...
"""
import json
import os
import http.server
import re
import sys
import threading

PORT_FILE, LOG, COMMANDS = sys.argv[1], sys.argv[2], sys.argv[3:]
TOOL = os.environ.get("TOOL")
lock = threading.Lock()


def log(**what):
    with lock, open(LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def shell_tool(tools):
    """Name and arguments' names of the agent's shell tool, or of TOOL; tools: [(name, schema)]."""
    if TOOL:  # alone, or behind the name of its server, as each agent writes it
        return next((tool for tool in tools if re.search("(^|isthmus(__|_|/|\\.|:))" + TOOL + "$", tool[0])), (None, None))
    for wanted in ("bash", "run_shell_command", "exec_command", "shell_command", "shell"):
        for name, schema in tools:
            if name.lower() == wanted:
                return name, schema or {}
    return None, None


def arguments(schema, command):
    if TOOL:
        return json.loads(command)
    properties = schema.get("properties", {})
    filled = {}
    for name in schema.get("required", []):
        filled[name] = "a step of the script"
    for name in ("command", "cmd"):
        if name in properties:
            filled[name] = ["bash", "-lc", command] if properties[name].get("type") == "array" else command
    return filled


def text_of(value):
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text_of(item) for item in value)
    if isinstance(value, dict):
        for key in ("text", "content", "output"):
            if key in value:
                return text_of(value[key])
        return json.dumps(value)
    return ""


def events(*items):
    return "".join((f"event: {name}\n" if name else "") + "data: " + json.dumps(data) + "\n\n" for name, data in items)


class Anthropic:
    @staticmethod
    def results(body):
        for message in body["messages"]:
            for part in message["content"] if isinstance(message["content"], list) else []:
                if part.get("type") == "tool_result":
                    yield text_of(part.get("content"))

    @staticmethod
    def tools(body):
        return [(tool["name"], tool.get("input_schema")) for tool in body.get("tools", [])]

    @staticmethod
    def answer(call, number):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call[0], "input": {}} if call else {"type": "text", "text": ""}
        delta = ({"type": "input_json_delta", "partial_json": json.dumps(call[1])} if call
                 else {"type": "text_delta", "text": "done"})
        usage = {"input_tokens": 1, "output_tokens": 1}
        return events(
            ("message_start", {"type": "message_start", "message": {
                "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": [],
                "stop_reason": None, "stop_sequence": None, "usage": usage}}),
            ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}),
            ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
            ("content_block_stop", {"type": "content_block_stop", "index": 0}),
            ("message_delta", {"type": "message_delta", "delta": {
                "stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}, "usage": usage}),
            ("message_stop", {"type": "message_stop"}))


class Chat:
    @staticmethod
    def results(body):
        for message in body["messages"]:
            if message["role"] == "tool":
                yield text_of(message.get("content"))

    @staticmethod
    def tools(body):
        return [(tool["function"]["name"], tool["function"].get("parameters")) for tool in body.get("tools", [])]

    @staticmethod
    def answer(call, number):
        delta = {"role": "assistant", "content": "done"}
        if call:
            delta = {"role": "assistant", "tool_calls": [{
                "index": 0, "id": f"call_{number}", "type": "function",
                "function": {"name": call[0], "arguments": json.dumps(call[1])}}]}
        common = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        return events(
            ("", {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
            ("", {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}],
                  "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})) + "data: [DONE]\n\n"


class Responses:
    @staticmethod
    def results(body):
        for item in body["input"] if isinstance(body["input"], list) else []:
            if item.get("type") in ("function_call_output", "custom_tool_call_output"):
                yield text_of(item.get("output"))

    @staticmethod
    def tools(body):
        for tool in body.get("tools", []):
            for inner in tool.get("tools", []):  # of a server, whose name Codex keeps apart
                yield tool["name"] + ":" + inner["name"], inner.get("parameters")
            if "name" in tool:
                yield tool["name"], tool.get("parameters")

    @staticmethod
    def answer(call, number):
        if call:
            *server, name = call[0].split(":")
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name,
                    "arguments": json.dumps(call[1]), **({"namespace": server[0]} if server else {})}
        else:
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant",
                    "content": [{"type": "output_text", "text": "done"}]}
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
                 "total_tokens": 2}
        return events(
            ("response.created", {"type": "response.created", "response": {"id": f"resp_{number}"}}),
            ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
            ("response.completed", {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}}))


class Gemini:
    @staticmethod
    def results(body):
        for content in body.get("contents", []):
            for part in content.get("parts", []):
                if "functionResponse" in part:
                    yield text_of(part["functionResponse"].get("response"))

    @staticmethod
    def tools(body):
        return [(function["name"], function.get("parametersJsonSchema") or function.get("parameters"))
                for tool in body.get("tools", []) for function in tool.get("functionDeclarations", [])]

    @staticmethod
    def answer(call, number):
        part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": "done"}
        return events(("", {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}))


DIALECTS = [(r"/messages$", Anthropic), (r"/chat/completions$", Chat), (r"/responses$", Responses),
            (r":(stream)?[gG]enerateContent$", Gemini)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, code, text, kind):
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send(200, json.dumps({"data": [], "models": []}), "application/json")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = self.path.split("?")[0]
        for pattern, dialect in DIALECTS:
            if re.search(pattern, path):
                self.send(200, self.turn(dialect, body), "text/event-stream")
                return
        self.send(200, json.dumps({"input_tokens": 1, "totalTokens": 1}), "application/json")

    @staticmethod
    def turn(dialect, body):
        results = list(dialect.results(body))
        tools = list(dialect.tools(body))
        name, schema = shell_tool(tools)
        step = len(results)
        if results:
            log(step=step, result=results[-1])
        if name is None:
            log(tools=[tool for tool, _ in tools])
        call = (name, arguments(schema, COMMANDS[step])) if name and step < len(COMMANDS) else None
        return dialect.answer(call, step)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(PORT_FILE + ".new", "w", encoding="utf-8") as file:
    file.write(str(server.server_address[1]))
os.rename(PORT_FILE + ".new", PORT_FILE)
server.serve_forever()
