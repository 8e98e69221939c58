// The tool of contract.py in TypeScript: a custom tool as pi's document of January 2026 has it.
import { spawn } from "node:child_process";
import { StringEnum } from "@mariozechner/pi-ai";
import type { CustomToolFactory } from "@mariozechner/pi-coding-agent";
import { Text } from "@mariozechner/pi-tui";
import { Type } from "@sinclair/typebox";
import { text } from "./words.js";

const does = ["echo", "throw", "update", "crash", "hang", "twice", "noise", "exec", "silent", "big", "ask", "cwd", "tell", "emit", "before"] as const;

const factory: CustomToolFactory = async (pi) => [
	{
		name: "exam",
		label: "Exam",
		description: "What a contract asks",
		parameters: Type.Object(
			{ do: StringEnum(does), text: Type.Optional(Type.String()), count: Type.Optional(Type.Integer()) },
			{ additionalProperties: false },
		),
		async execute(toolCallId, params, onUpdate, ctx, signal) {
			const { do: what, text: words = "" } = params as { do: string; text?: string };
			switch (what) {
				case "echo":
					return { content: text(words), details: { secret: "kept apart" } };
				case "throw":
					throw new Error(`no luck with ${words}`);
				case "update":
					for (const step of [1, 2, 3]) onUpdate?.({ content: text(`step ${step}`) });
					return { content: text("all steps") };
				case "crash":
					console.error("it broke");
					process.exit(3);
				case "hang":
					process.on("SIGTERM", () => {});
					spawn("sleep", [words], { detached: true });
					await new Promise((resolve) => setTimeout(resolve, Number(words) * 1000));
					break;
				case "twice":
					process.stdout.write(`${JSON.stringify({ type: "result", id: toolCallId, content: text("first") })}\n`);
					return { content: text("second") };
				case "noise":
					process.stdout.write('no JSON\n{"type":"unknown"}\n[1]\n');
					console.log("harmless");
					return { content: text("heard") };
				case "exec":
					return { content: text((await pi.exec("printf", ["%s", "$HOME and *"], { timeout: 5000, signal })).stdout) };
				case "silent":
					process.exit(0);
				case "big":
					return { content: text(`${"x".repeat(99)}\n`.repeat(30000)) };
				case "tell":
					pi.sendMessage({ customType: "note", content: "by the way", display: true });
					return { content: text("told") };
				case "emit":
					pi.events.emit("exam:done", { n: 1 });
					return { content: text("emitted") };
				case "before":
					return { content: text(String(ctx.sessionManager.getEntries().length)) };
				case "ask":
					return { content: text(`chose ${(await pi.ui.select("Which?", ["red", "blue"])) ?? ""} in ${process.pid}`) };
			}
			return { content: text(pi.cwd) };
		},
		renderCall: () => new Text("exam", 0, 0),
	},
];

export default factory;
