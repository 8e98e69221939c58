// Replacements for the packages that pi's tools import: schemas, truncation, and components that render
// to lines.  A package in the tool's own node_modules takes precedence.
import fs from "node:fs";
import module from "node:module";
import os from "node:os";
import path from "node:path";
import url from "node:url";

// ---- typebox: plain JSON Schema ------------------------------------------------------------

const optional = Symbol("optional");
const schema = (type) => (options = {}) => ({ type, ...options });
const Type = {
	String: schema("string"),
	Number: schema("number"),
	Integer: schema("integer"),
	Boolean: schema("boolean"),
	Null: schema("null"),
	Any: (options = {}) => ({ ...options }),
	Unknown: (options = {}) => ({ ...options }),
	Unsafe: (options = {}) => ({ ...options }),
	Literal: (value, options = {}) => ({ const: value, type: typeof value, ...options }),
	Enum: (values, options = {}) => ({ enum: Object.values(values), ...options }),
	Union: (anyOf, options = {}) => ({ anyOf, ...options }),
	Array: (items, options = {}) => ({ type: "array", items, ...options }),
	Tuple: (items, options = {}) => ({ type: "array", prefixItems: items, minItems: items.length, maxItems: items.length, ...options }),
	Record: (_key, value, options = {}) => ({ type: "object", additionalProperties: value, ...options }),
	Optional: (inner) => ({ ...inner, [optional]: true }),
	Object(properties, options = {}) {
		const required = Object.keys(properties).filter((name) => !properties[name][optional]);
		return { type: "object", ...(required.length ? { required } : {}), properties, ...options };
	},
	Partial: (object) => ({ ...object, required: undefined }),
};
const StringEnum = (values, options = {}) => ({ type: "string", enum: [...values], ...options });

// ---- Text --------------------------------------------------------------------------------------

const maxBytes = 50 * 1024;
const maxLines = 2000;

function cut(text, options, fromEnd) {
	const lines = text.split("\n");
	const limits = { maxLines: options?.maxLines ?? maxLines, maxBytes: options?.maxBytes ?? maxBytes };
	const kept = [];
	let bytes = 0;
	let truncatedBy = null;
	for (const line of fromEnd ? [...lines].reverse() : lines) {
		const size = Buffer.byteLength(line) + (kept.length ? 1 : 0);
		if (kept.length >= limits.maxLines) truncatedBy = "lines";
		else if (bytes + size > limits.maxBytes) truncatedBy = "bytes";
		if (truncatedBy) break;
		kept.push(line);
		bytes += size;
	}
	const content = (fromEnd ? kept.reverse() : kept).join("\n");
	return {
		content, truncated: truncatedBy !== null, truncatedBy, totalLines: lines.length, totalBytes: Buffer.byteLength(text),
		outputLines: kept.length, outputBytes: bytes, lastLinePartial: false, firstLineExceedsLimit: !kept.length && lines.length > 0,
		...limits,
	};
}

function formatSize(bytes) {
	if (bytes < 1024) return `${bytes}B`;
	return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)}KB` : `${(bytes / 1024 / 1024).toFixed(1)}MB`;
}

function parseFrontmatter(content) {
	const found = /^---\r?\n([\s\S]*?)\r?\n---\r?\n?/.exec(content);
	const frontmatter = {};
	for (const line of found ? found[1].split("\n") : []) {
		const pair = /^([\w-]+):\s*(.*?)\s*$/.exec(line);
		if (pair) frontmatter[pair[1]] = pair[2].replace(/^(["'])(.*)\1$/, "$2");
	}
	return { frontmatter, body: found ? content.slice(found[0].length).trim() : content };
}

const escapes = /\x1b\[[0-9;]*m/g;
const visibleWidth = (text) => [...text.replace(escapes, "")].length;
const truncateToWidth = (text, width, ellipsis = "...") =>
	visibleWidth(text) <= width ? text : [...text.replace(escapes, "")].slice(0, Math.max(0, width - ellipsis.length)).join("") + ellipsis;
const wrapTextWithAnsi = (text, width) =>
	text.split("\n").flatMap((line) => {
		const lines = [];
		for (let rest = line; ; rest = rest.slice(width)) {
			lines.push(visibleWidth(rest) <= width ? rest : rest.slice(0, width));
			if (visibleWidth(rest) <= width) return lines;
		}
	});

export const plain = (text) => text.replace(escapes, "");

const colors = {
	accent: 36, border: 90, borderAccent: 36, borderMuted: 90, success: 32, error: 31, warning: 33, muted: 90, dim: 90, toolTitle: 36,
	thinkingText: 90, mdHeading: 33, mdLink: 34, mdCode: 36,
};
const style = (on, off) => (text) => `\x1b[${on}m${text}\x1b[${off}m`;
export const theme = {
	fg: (color, text) => (colors[color] ? style(colors[color], 39)(text) : text),
	bg: (_color, text) => text,
	bold: style(1, 22),
	italic: style(3, 23),
	underline: style(4, 24),
	inverse: style(7, 27),
	strikethrough: style(9, 29),
};

// ---- Components ----------------------------------------------------------------------------------

class Text {
	constructor(text = "") {
		this.text = text;
	}
	setText(text) {
		this.text = text;
	}
	render(width) {
		return wrapTextWithAnsi(this.text, width);
	}
	invalidate() {}
}
class Container {
	children = [];
	addChild(child) {
		this.children.push(child);
	}
	removeChild(child) {
		this.children = this.children.filter((one) => one !== child);
	}
	clear() {
		this.children = [];
	}
	render(width) {
		return this.children.flatMap((child) => child.render(width));
	}
	invalidate() {}
}
class Box extends Container {}
class Spacer {
	constructor(lines = 1) {
		this.lines = lines;
	}
	render() {
		return Array(this.lines).fill("");
	}
	invalidate() {}
}
class Markdown extends Text {}

const agentDirectory = () => process.env.PI_CODING_AGENT_DIR ?? path.join(os.homedir(), ".pi", "agent");
const packages = {
	typebox: { Type },
	"pi-ai": { Type, StringEnum },
	"pi-agent-core": {},
	"pi-tui": { Text, Box, Container, Spacer, Markdown, visibleWidth, truncateToWidth, wrapTextWithAnsi, matchesKey: () => false, Key: {} },
	"pi-coding-agent": {
		defineTool: (tool) => tool,
		truncateHead: (text, options) => cut(text, options, false),
		truncateTail: (text, options) => cut(text, options, true),
		truncateLine: (line, limit = 500) =>
			line.length <= limit ? { text: line, wasTruncated: false } : { text: `${line.slice(0, limit)}... [truncated]`, wasTruncated: true },
		DEFAULT_MAX_BYTES: maxBytes,
		DEFAULT_MAX_LINES: maxLines,
		CONFIG_DIR_NAME: ".pi",
		VERSION: "0",
		formatSize,
		parseFrontmatter,
		getAgentDir: agentDirectory,
		getMarkdownTheme: () => ({}),
		withFileMutationQueue: (_file, work) => work(),
	},
};
globalThis[Symbol.for("isthmus.pi")] = packages;

// ---- Modules ---------------------------------------------------------------------------------------

function shimOf(specifier) {
	if (/^(@sinclair\/)?typebox(\/|$)/.test(specifier)) return "typebox";
	const found = /^@(?:mariozechner|earendil-works)\/(pi-[a-z-]+)/.exec(specifier);
	return found && packages[found[1]] ? found[1] : undefined;
}

// The names that a file imports from a package.  Those without a shim become undefined instead of errors.
function importedNames(parent, specifier) {
	const names = new Set();
	const source = parent?.startsWith("file:") ? fs.readFileSync(url.fileURLToPath(parent), "utf8") : "";
	for (const [, clause, from] of source.matchAll(/(?:import|export)\s[^{;]*\{([^}]*)\}\s*from\s*["']([^"']+)["']/g))
		if (from === specifier)
			for (const word of clause.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, "").split(",")) {
				const name = /^\s*(?!type\s)([A-Za-z_$][\w$]*)/.exec(word);
				if (name && name[1] !== "default") names.add(name[1]);
			}
	return names;
}

// "./a.js" may be a.ts, and "./a" may be a.ts or a/index.ts.
function otherNames(specifier) {
	if (!/^\.{1,2}\//.test(specifier)) return [];
	const base = specifier.replace(/\.(m?)js$/, "");
	return base === specifier ? [`${base}.ts`, `${base}.js`, `${base}/index.ts`] : [`${base}.ts`, `${base}.mts`];
}

function resolve(specifier, context, next) {
	try {
		return next(specifier, context);
	} catch (error) {
		for (const other of otherNames(specifier)) {
			try {
				return next(other, context);
			} catch {
				// the next one
			}
		}
		const shim = shimOf(specifier);
		if (!shim) throw error;
		const names = new Set([...Object.keys(packages[shim]), ...importedNames(context.parentURL, specifier)]);
		return { url: `isthmus-pi:${shim}?${[...names].join(",")}`, format: "module", shortCircuit: true };
	}
}

let jiti; // once something is there that Node.js does not strip

// Whether jiti was found, beside the file or with the pi in PATH.
export function useJiti(file) {
	const programs = (process.env.PATH ?? "").split(":").map((directory) => path.join(directory, "pi"));
	const pi = programs.find((program) => fs.existsSync(program));
	for (const from of [file, ...(pi ? [fs.realpathSync(pi)] : [])])
		try {
			jiti ??= module.createRequire(from)("jiti").createJiti(file);
		} catch {
			// the next one
		}
	return jiti !== undefined;
}

function load(address, context, next) {
	const file = jiti && /^file:.*\.m?ts(\?.*)?$/.test(address) ? url.fileURLToPath(address) : undefined;
	if (file) {
		const source = jiti.transform({ source: fs.readFileSync(file, "utf8"), filename: file, ts: true });
		return { format: "commonjs", shortCircuit: true, source };
	}
	const isTypescript = /\.m?ts$/.test(new URL(address).pathname);
	// Node.js itself refuses to strip types there, where packages that pi installs have their files.
	if (isTypescript && address.includes("/node_modules/")) {
		const source = module.stripTypeScriptTypes(fs.readFileSync(url.fileURLToPath(address), "utf8"), { sourceUrl: address });
		return { format: "module", shortCircuit: true, source };
	}
	const shim = /^isthmus-pi:([a-z-]+)\?(.*)$/.exec(address);
	if (shim) {
		const lines = shim[2].split(",").filter(Boolean).map((name) => `export const ${name} = all[${JSON.stringify(name)}];\n`);
		const all = `globalThis[Symbol.for("isthmus.pi")][${JSON.stringify(shim[1])}]`;
		return { format: "module", shortCircuit: true, source: `const all = ${all};\nexport default all;\n${lines.join("")}` };
	}
	return next(address, isTypescript ? { ...context, format: "module-typescript" } : context);
}

export function installShims() {
	module.registerHooks({ resolve, load });
}
