/* The rows of npm, cargo, docker, kubectl and others with sub-commands; shell_programs_internal.h
 * explains their strings. */
#include "tools/shell/shell_programs_rows.h"

/* ---- npm and similar programs ---------------------------------------------------------------- */

static const struct shell_row npm_commands[] = {
	{.names = "run run-script rum urn",
		.prefix = 1,
		.flags = SHELL_ROW_INHERITS,
		.operands = "t*"},
	{.names = "exec x", .prefix = 1, .flags = SHELL_ROW_INHERITS, .options = "-c:! --call:!"},
	{.names = "config c set explore edit", .flags = SHELL_ROW_INHERITS | SHELL_ROW_RUNS_OTHERS},
	{.names = "test t tst start stop restart ci install i add update up outdated ls list view "
		  "info audit pack publish version uninstall remove rm un link dedupe prune why "
		  "fund init create",
		.flags = SHELL_ROW_INHERITS},
};

static const struct shell_row yarn_commands[] = {
	{.names = "run", .prefix = 1, .flags = SHELL_ROW_INHERITS, .operands = "t*"},
	{.names = "exec dlx",
		.prefix = 1,
		.flags = SHELL_ROW_INHERITS,
		.options = "-c! --shell-mode!"},
	{.names = "config set", .flags = SHELL_ROW_INHERITS | SHELL_ROW_RUNS_OTHERS},
	{.names = "test start stop install i add update up remove rm list ls why build lint "
		  "outdated audit",
		.flags = SHELL_ROW_INHERITS},
};

#define NPM_OPTIONS                                                                                \
	"-C~ --prefix~ --script-shell:! --shell:! --node-options:! --git:! --editor:! --viewer:! " \
	"--browser:! --init-module:! --userconfig:% --globalconfig:% --onload-script:! --cache& "  \
	"--registry:% -w: --workspace: -s --silent --workspaces --if-present --ignore-scripts "    \
	"-q --quiet --verbose -d -g --global --yes -y --no --version -v --help -h --json "         \
	"--loglevel: --foreground-scripts --no-audit --no-fund -D -S -E -O -P -f --force --save "  \
	"--save-dev --save-exact --save-optional --save-peer --no-save --production --omit: "      \
	"--include: --legacy-peer-deps --frozen-lockfile --depth: --all --prefer-offline "         \
	"--offline"

/* ---- docker, cargo, go, gh, kubectl ---------------------------------------------------------- */

#define DOCKER_RUN                                                                            \
	" -v:% --volume:% --mount:% --volumes-from:% --privileged% --pid:% --ipc:% --uts:% "  \
	"--userns:% "                                                                         \
	"--net:% --network:% --device:% --device-cgroup-rule:% --cap-add:% --security-opt:% " \
	"--cgroup-parent:% --runtime:% --env-file< --cidfile> --label-file< --entrypoint: "   \
	"-e: --env: -p: --publish: --name: -w: --workdir: -u: --user: -h: --hostname: -m: "   \
	"--memory: -l: --label: -itdP --rm --init --platform: --pull: --cpus: -q"

static const struct shell_row docker_compose[] = {
	{.names = "run exec",
		.flags = STOPS,
		.operands = "t*",
		.options = " -v:% --volume:% -e: -u: "
			   "-w: --entrypoint:"},
	{.names = "cp", .options = "-a", .operands = "b*"},
};

static const struct shell_row docker_commands[] = {
	{.names = "run create", .options = DOCKER_RUN, .flags = STOPS, .operands = "t*"},
	{.names = "exec",
		.options = "-itd -e: -u: -w: --env: --user: --workdir: --env-file< "
			   "--privileged%",
		.flags = STOPS,
		.operands = "t*"},
	{.names = "build buildx",
		.options = "-q --no-cache --pull --target: --progress: --platform: --load -f< "
			   "--file< -t: --tag: --build-arg: --iidfile> -o:; "
			   "--output:; --secret:% --ssh:% --build-context<",
		.operands = "R*"},
	{.names = "cp", .options = "-a", .operands = "b*"},
	{.names = "compose",
		.options = "-f< --file< --env-file< --project-directory~ -p: "
			   "--profile:",
		COMMANDS(docker_compose)},
	{.names = "plugin context config swarm", .flags = SHELL_ROW_RUNS_OTHERS},
	{.names = "save export", .options = "-o> --output>", .operands = "t*"},
	{.names = "load import", .options = "-i< --input<", .operands = "r*"},
	{.names = "ps images logs inspect version info top stats port history search pull push tag "
		  "rm rmi stop start restart kill login logout",
		.operands = "t*",
		.options = "-aqfnt --all --quiet --force --follow --tail: --filter: --format: "
			   "--no-trunc --size"},
};

#define CARGO_OPTIONS                                                                       \
	"-C~ -Z:! --config:! --manifest-path< --target-dir> --out-dir> --artifact-dir> "    \
	"--lockfile-path& "                                                                 \
	"-v -q --verbose --quiet --locked --offline --frozen --color: --list --version -V " \
	"--explain: -r --release --workspace --all --all-targets --all-features "           \
	"--no-default-features -F: --features: -p: --package: --bin: --bins --lib --test: " \
	"--tests --example: --examples --bench: --benches --exclude: --no-run -j: --jobs: " \
	"--keep-going --no-fail-fast --message-format: --profile: --doc --no-deps --check " \
	"--fix --allow-dirty --allow-staged --dev --depth:"

static const struct shell_row cargo_commands[] = {
	{.names = "run r", .flags = SHELL_ROW_INHERITS | STOPS},
	{.names = "install", .flags = SHELL_ROW_INHERITS, .options = "--root> --path< --git:"},
	{.names = "build b check c test t bench clippy fmt doc d clean update add remove tree "
		  "metadata "
		  "fetch fix publish package new init search",
		.flags = SHELL_ROW_INHERITS},
};

#define GO_OPTIONS                                                                              \
	"-C~ -exec:! -toolexec:! -o> -overlay< -modfile& -pkgdir> -vettool:! -compiler:! "      \
	"-gccgoflags:! "                                                                        \
	"-ldflags:! -gcflags:! -asmflags:! -coverprofile> -cpuprofile> -memprofile> "           \
	"-blockprofile> "                                                                       \
	"-mutexprofile> -trace> -outputdir> -coverdir> -run: -bench: -count: -timeout: -tags: " \
	"-v -race -x -n -a -json -short -cover -mod: -p: -parallel: -failfast -cpu: "           \
	"-vet: -benchmem -shuffle: -u -d -m -w -l -trimpath"

static const struct shell_row go_commands[] = {
	{.names = "run", .prefix = 1, .flags = SHELL_ROW_INHERITS | STOPS | SHELL_ROW_WORD_OPTIONS},
	{.names = "env",
		.flags = SHELL_ROW_WORD_OPTIONS,
		.options = "-w! -u! -json -changed",
		.operands = "t*"},
	{.names = "build test vet install get list fmt doc mod generate tool clean version work "
		  "fix",
		.flags = SHELL_ROW_INHERITS | SHELL_ROW_WORD_OPTIONS},
};

static const struct shell_row gh_commands[] = {
	{.names = "alias extension ext config repo", .flags = SHELL_ROW_RUNS_OTHERS},
	{.names = "api",
		.options = "-F:@ --field:@ --input< -f: -X: -H: -q: -t:",
		.operands = "t*"},
	{.names = "pr issue run release workflow search gist auth label status browse",
		.options = "-t: --title: -b: --body: -R: --repo: -L: --limit: -s: --state: -q: "
			   "--jq: --json: -B: --base: -H: --head: -l: --label: -F< --body-file< "
			   "--draft --comments --fill --log --log-failed --watch --merge --squash "
			   "--rebase",
		.prefix = 1},
};

static const struct shell_row kubectl_commands[] = {
	{.names = "exec", /* takes options up to "--" */
		.options = "-itq -c: -n:",
		.flags = SHELL_ROW_INHERITS,
		.operands = "t*"},
	{.names = "apply create delete replace",
		.flags = SHELL_ROW_INHERITS,
		.options = "-f< --filename< -k<",
		.prefix = 0},
	{.names = "cp", .operands = "b*", .flags = SHELL_ROW_INHERITS},
	{.names = "config", .flags = SHELL_ROW_RUNS_OTHERS},
	{.names = "get describe logs top explain version cluster-info rollout scale edit label",
		.flags = SHELL_ROW_INHERITS,
		.operands = "t*"},
};

static const struct shell_row rows[] = {
	{.names = "npm pnpm bun", .options = NPM_OPTIONS, COMMANDS(npm_commands)},
	{.names = "yarn",
		.options = "--cwd~ --use-yarnrc:% --script-shell:! --silent -s --version "
			   "--use-yarn-path% --cache-folder&",
		COMMANDS(yarn_commands)},
	{.names = "npx pnpx bunx",
		.flags = STOPS,
		.prefix = 1,
		.options = "-c:! --call:! --shell:! -p: --package: -y --yes --no -q --quiet "
			   "--userconfig:% --prefix~ --node-options:! --script-shell:!"},
	{.names = "cargo",
		.options = CARGO_OPTIONS,
		.flags = SHELL_ROW_PLUS_OPTIONS,
		COMMANDS(cargo_commands)},
	{.names = "go",
		.options = GO_OPTIONS,
		.flags = SHELL_ROW_WORD_OPTIONS,
		COMMANDS(go_commands)},
	{.names = "docker podman",
		COMMANDS(docker_commands),
		.options = "-H:% --host:% -c:% --context:% --config:% --tlscacert< --tlscert< "
			   "--tlskey< "
			   "-D --debug -l: --log-level: --tls --tlsverify --version -v --url:% "
			   "--connection:% --root& --runroot& --remote% --hooks-dir:! --conmon:! "
			   "--runtime:! --module:%"},
	{.names = "docker-compose",
		COMMANDS(docker_compose),
		.options = "-f< --file< --env-file< --project-directory~ -p: --profile:"},
	{.names = "kubectl",
		COMMANDS(kubectl_commands),
		.options = "--kubeconfig:% --context:% --cluster:% -s% --server:% -n: --namespace: "
			   "--as:% --token: --cache-dir& --profile-output> -f< -A -o:; -l: -w "
			   "--all-namespaces --output:; --selector: --watch --tail: --since: "
			   "--container: -c: --dry-run="},
	{.names = "gh", .options = "--version --help -R: --repo:", COMMANDS(gh_commands)},
};
const struct shell_rows shell_rows_packages = {rows, array_size(rows)};
