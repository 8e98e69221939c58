/* The rows of git and its sub-commands; shell_programs_internal.h explains their strings. */
#include "tools/shell/shell_programs_rows.h"

/* Options of the sub-commands that print differences, and of those that walk through revisions. */
#define GIT_DIFF                                                                                  \
	"-pusazRwWbDqr0 -UlSG: -BMCX= -O< --patch --no-patch --raw --minimal --patience "         \
	"--histogram --anchored: --diff-algorithm: --stat= --compact-summary --numstat "          \
	"--shortstat --dirstat= --cumulative --summary --no-renames --rename-empty "              \
	"--no-rename-empty --full-index --binary --abbrev= --no-abbrev --check --color= "         \
	"--no-color --color-moved= --color-words= --word-diff= --word-diff-regex: --name-only "   \
	"--name-status --submodule= --find-renames= --find-copies= --find-copies-harder "         \
	"--break-rewrites= --irreversible-delete --diff-filter: --find-object: --pickaxe-all "    \
	"--pickaxe-regex --skip-to: --rotate-to: --relative= --no-relative --text "               \
	"--ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --ignore-all-space "      \
	"--ignore-blank-lines --ignore-matching-lines: --inter-hunk-context: --function-context " \
	"--exit-code --quiet --no-ext-diff --no-textconv --textconv! --ignore-submodules= "       \
	"--src-prefix: --dst-prefix: --no-prefix --line-prefix: --ita-invisible-in-index "        \
	"--unified: --patch-with-stat --patch-with-raw --output-indicator-new: "                  \
	"--output-indicator-old: --output-indicator-context: --output> --ext-diff! --no-index% "  \
	"--cached --staged --merge-base --base --ours --theirs --cc -c --combined-all-paths "

#define GIT_REVISIONS                                                                             \
	"-gtivEFP123456789 -nL: --max-count: --skip: --since: --after: --until: --before: "       \
	"--author: --committer: --grep: --grep-reflog: --all-match --invert-grep "                \
	"--regexp-ignore-case --basic-regexp --extended-regexp --fixed-strings --perl-regexp "    \
	"--remove-empty --merges --no-merges --min-parents: --max-parents: --no-min-parents "     \
	"--no-max-parents --first-parent --exclude-first-parent-only --not --all --branches= "    \
	"--tags= --remotes= --glob: --exclude: --reflog --alternate-refs --bisect --cherry-mark " \
	"--cherry-pick --left-only --right-only --cherry --walk-reflogs --merge --boundary "      \
	"--simplify-by-decoration --full-history --dense --sparse --simplify-merges "             \
	"--ancestry-path= --show-pulls --date-order --author-date-order --topo-order --reverse "  \
	"--pretty= --format: --abbrev-commit --no-abbrev-commit --oneline --encoding: "           \
	"--expand-tabs= --no-expand-tabs --notes= --no-notes --relative-date --date: --parents "  \
	"--children --left-right --graph --show-linear-break= --decorate= --no-decorate "         \
	"--decorate-refs: --decorate-refs-exclude: --clear-decorations --source --use-mailmap "   \
	"--mailmap --no-mailmap --log-size --follow --full-diff --diff-merges: --no-diff-merges " \
	"--count --objects --stdin% --missing: --timestamp --header --since-as-filter: "

static const struct shell_row git_stash[] = {
	{.names = "list", .options = GIT_REVISIONS GIT_DIFF, .flags = READS | TREE},
	{.names = "show",
		.options = GIT_DIFF "--include-untracked --only-untracked",
		.operands = "v*",
		.flags = READS | TREE},
};

static const struct shell_row git_worktree[] = {
	{.names = "list",
		.options = "-vz --porcelain --verbose --expire:",
		.operands = "t*",
		.flags = READS},
};

static const struct shell_row git_reflog[] = {
	{.names = "show",
		.options = GIT_REVISIONS GIT_DIFF,
		.operands = "v*",
		.flags = READS | TREE},
	{.names = "exists", .options = "", .operands = "t*", .flags = READS},
};

static const struct shell_row git_submodule[] = {
	{.names = "foreach",
		.operands = "t*",
		.options = "-q --recursive --quiet",
		.flags = STOPS,
		.look = shell_look_watch},
};

static const struct shell_row git_bisect[] = {
	{.names = "run", .flags = RUNS, .options = ""},
	{.names = "log view", .options = "", .operands = "t*"},
};

static const struct shell_row git_commands[] = {
	{.names = "status",
		.operands = "r*",
		.flags = READS,
		.options = "-sbz -v? -uM= --short --branch --show-stash --porcelain= --long "
			   "--verbose? "
			   "--untracked-files= --ignore-submodules= --ignored= --column= "
			   "--no-column --ahead-behind --no-ahead-behind --renames --no-renames "
			   "--find-renames= --null"},
	{.names = "log whatchanged",
		.options = GIT_REVISIONS GIT_DIFF "-m --remerge-diff",
		.operands = "v*",
		.flags = READS | TREE},
	{.names = "show",
		.options = GIT_REVISIONS GIT_DIFF "-m --remerge-diff",
		.operands = "v*",
		.flags = READS | TREE},
	{.names = "diff diff-tree diff-index diff-files",
		.operands = "v*",
		.flags = READS | TREE,
		.options = GIT_DIFF "-mtvi123 --root --stdin% --pretty= --format: --no-commit-id "
				    "--always --oneline"},
	{.names = "range-diff",
		.options = GIT_DIFF "--creation-factor: --no-dual-color",
		.operands = "v*",
		.flags = READS | TREE},
	{.names = "rev-list",
		.options = GIT_REVISIONS "--quiet --disk-usage= --no-object-names",
		.operands = "v*",
		.flags = READS},
	{.names = "shortlog",
		.options = "-nsec -w= --numbered --summary --email --group: " GIT_REVISIONS,
		.operands = "v*",
		.flags = READS},
	{.names = "blame annotate",
		.operands = "v*",
		.flags = READS | TREE,
		.options =
			"-blrtfnwpsecki -L: -S< -CM= --root --show-stats --reverse --first-parent "
			"--porcelain --line-porcelain --incremental --encoding: --contents< "
			"--date: --progress --no-progress --score-debug --show-name "
			"--show-number --show-email --minimal --ignore-rev: "
			"--ignore-revs-file< --color-lines --color-by-age --abbrev="},
	{.names = "branch",
		.operands = "t*",
		.flags = READS,
		.look = shell_look_git_branch,
		.options =
			"-arvlqi --all --remotes --list --verbose --show-current --color= "
			"--no-color --column= --no-column --sort: --points-at: --format: "
			"--contains: --no-contains: --merged: --no-merged: --abbrev= --no-abbrev "
			"--ignore-case --quiet --omit-empty "
			"-dDmMcCfut? --delete? --move? --copy? --force? --track? --no-track? "
			"--set-upstream-to? --unset-upstream? --edit-description! "
			"--create-reflog? --recurse-submodules?"},
	{.names = "tag",
		.operands = "t*",
		.flags = READS,
		.look = shell_look_git_branch,
		.options = "-li -n= --list --sort: --contains: --no-contains: --merged: "
			   "--no-merged: --points-at: --format: --color= --column= --no-column "
			   "--ignore-case --omit-empty "
			   "-asdfe? -um:? -F< --annotate? --sign? --delete? --force? --message:? "
			   "--file< --local-user:? --cleanup:? --create-reflog? -v! --verify!"},
	{.names = "rev-parse",
		.operands = "v*",
		.flags = READS,
		.options = "-qh --is-inside-work-tree --is-inside-git-dir --is-bare-repository "
			   "--is-shallow-repository --show-toplevel --show-prefix --show-cdup "
			   "--show-superproject-working-tree --git-dir --absolute-git-dir "
			   "--git-common-dir --git-path: --abbrev-ref= --short= --symbolic "
			   "--symbolic-full-name --verify --quiet --revs-only --no-revs --flags "
			   "--no-flags --all --branches= --tags= --remotes= --glob: --exclude: "
			   "--default: --not --sq --since: --until: --path-format: "
			   "--show-object-format= --shared-index-path --disambiguate: "
			   "--parseopt --keep-dashdash --stuck-long --sq-quote --end-of-options "
			   "--local-env-vars"},
	{.names = "ls-files",
		.operands = "r*",
		.flags = READS,
		.options = "-cdmosiktuvfz -xX< --cached --deleted --modified --others --ignored "
			   "--stage --directory --no-empty-directory --unmerged --killed "
			   "--resolve-undo --exclude: --exclude-from< --exclude-per-directory: "
			   "--exclude-standard --error-unmatch --with-tree: --full-name "
			   "--recurse-submodules --abbrev= --debug --eol --deduplicate --sparse "
			   "--format:"},
	{.names = "ls-tree",
		.operands = "v*",
		.flags = READS,
		.options = "-drtlz --long --name-only --name-status --object-only --full-name "
			   "--full-tree --abbrev= --format:"},
	{.names = "cat-file",
		.operands = "v*",
		.flags = READS | TREE,
		.options = "-tspe --batch= --batch-check= --batch-command= --filters! "
			   "--textconv! --path: --allow-unknown-type --batch-all-objects --buffer "
			   "--unordered --follow-symlinks --use-mailmap --mailmap"},
	{.names = "grep",
		.operands = "tv*",
		.flags = READS | TREE,
		.options = "-aiIwvhHEGPFnlLczopWqr0123456789 -ABCm: -e:^ -f<^ -O!= "
			   "--open-files-in-pager!= --no-index% --cached --untracked "
			   "--exclude-standard --no-exclude-standard --recurse-submodules --text "
			   "--ignore-case --max-depth: --recursive --no-recursive --word-regexp "
			   "--invert-match --full-name --extended-regexp --basic-regexp "
			   "--perl-regexp --fixed-strings --line-number --column "
			   "--files-with-matches --name-only --files-without-match --null "
			   "--only-matching --count --color= --no-color --break --heading "
			   "--show-function --context: --after-context: --before-context: "
			   "--function-context --max-count: --threads: --and^ --or^ --not^ "
			   "--all-match --quiet --textconv! --no-textconv"},
	{.names = "describe",
		.operands = "v*",
		.flags = READS,
		.options = "--dirty= --broken= --all --tags --contains --abbrev: --candidates: "
			   "--exact-match --debug --long --match: --exclude: --always "
			   "--first-parent"},
	{.names = "merge-base",
		.operands = "v*",
		.flags = READS,
		.options = "-a --all --octopus --independent --is-ancestor --fork-point"},
	{.names = "name-rev",
		.operands = "v*",
		.flags = READS,
		.options = "--tags --refs: --exclude: --all --name-only --no-undefined --always"},
	{.names = "show-ref",
		.operands = "t*",
		.flags = READS,
		.options = "-dqs --head --heads --tags --branches --dereference --hash= --verify "
			   "--exists --abbrev= --quiet"},
	{.names = "for-each-ref",
		.operands = "t*",
		.flags = READS,
		.options = "--count: --sort: --format: --color= --shell --perl --python --tcl "
			   "--merged= --no-merged= --contains= --no-contains= --points-at: "
			   "--ignore-case --omit-empty --exclude:"},
	{.names = "check-ignore",
		.operands = "r*",
		.flags = READS,
		.options = "-qvzn --quiet --verbose --non-matching --no-index --stdin"},
	{.names = "count-objects",
		.options = "-vH --verbose --human-readable",
		.flags = READS,
		.operands = "t*"},
	{.names = "version", .options = "--build-options", .flags = READS, .operands = "t*"},
	{.names = "reflog",
		.options = GIT_REVISIONS GIT_DIFF,
		.flags = READS | TREE,
		COMMANDS(git_reflog)},
	{.names = "stash",
		.options = "-uakqS -m: --include-untracked --all --keep-index --no-keep-index "
			   "--quiet --staged --message:",
		.prefix = 1,
		COMMANDS(git_stash)},
	{.names = "worktree", .options = "", .prefix = 1, COMMANDS(git_worktree)},
	{.names = "submodule", .options = "-q --quiet", COMMANDS(git_submodule)},
	{.names = "bisect", .options = "", COMMANDS(git_bisect)},
	{.names = "remote",
		.options = "-v --verbose",
		.operands = "t*",
		.flags = READS,
		.look = shell_look_git_remote},
	{.names = "config",
		.operands = "t*",
		.look = shell_look_git_config,
		.flags = READS,
		.options = "-lz -f< --file< --blob: --get --get-all --get-regexp --get-urlmatch "
			   "--list --local --global --system --worktree --type: --bool --int "
			   "--bool-or-int --bool-or-str --path --expiry-date --null --name-only "
			   "--show-origin --show-scope --includes% --no-includes --default: "
			   "--fixed-value --get-color --get-colorbool --all "
			   "-e! --edit! --add! --unset! --unset-all! --replace-all! "
			   "--rename-section! --remove-section!"},

	/* Sub-commands that change something: only options that run programs or name files. */
	{.names = "push",
		.options = "-uqvnfd46 --receive-pack:! --exec:! --repo:; --set-upstream --quiet "
			   "--verbose --dry-run --force --force-with-lease= --force-if-includes "
			   "--delete --tags --follow-tags --all --prune --progress --no-verify "
			   "--porcelain --atomic",
		.operands = "t*",
		.look = shell_look_git_transport},
	{.names = "fetch pull",
		.options = "-qvpatfnk46 --upload-pack:! -o: --quiet --verbose --prune --all --tags "
			   "--no-tags --depth: --unshallow --rebase= --no-rebase --ff-only --ff "
			   "--no-ff --autostash --progress --dry-run --force --append",
		.operands = "t*",
		.look = shell_look_git_transport},
	{.names = "ls-remote",
		.options = "-qht --upload-pack:! --exec:! --heads --tags --refs --quiet "
			   "--exit-code --get-url --symref",
		.operands = "t*",
		.look = shell_look_git_transport},
	{.names = "clone",
		.operands = "bW",
		.look = shell_look_git_transport,
		.options = "-qvn -u:! --upload-pack:! -c:! --config:! --template:! "
			   "--separate-git-dir& --bare% --mirror% --reference< "
			   "--reference-if-able< -bo: --depth: --branch: --origin: --quiet "
			   "--verbose --progress --no-checkout --single-branch --no-tags"},
	{.names = "init",
		.options = "-q --quiet --bare% --template:! --separate-git-dir& -b: "
			   "--initial-branch:",
		.operands = "W",
		.look = shell_look_git_init},
	{.names = "commit",
		.options = "-aqvsn -m: -F< -t< -Cc: --file< --template< --message: --author: "
			   "--date: --trailer: --pathspec-from-file< --all --amend --no-edit "
			   "--allow-empty --allow-empty-message --quiet --verbose --signoff "
			   "--no-verify --fixup: --squash: --only --include --dry-run",
		.operands = "r*"},
	{.names = "add stage",
		.options = "-AunvfN --pathspec-from-file< -i! -p! -e! --edit! --interactive! "
			   "--patch! --all --update --dry-run --verbose --force --intent-to-add "
			   "--ignore-removal --no-ignore-removal",
		.operands = "R*"},
	{.names = "mv", .operands = "b*d", .options = "-fknv --force --dry-run --verbose"},
	{.names = "rm",
		.operands = "X*",
		.options = "-rfnq --pathspec-from-file< --cached --force --dry-run --quiet "
			   "--ignore-unmatch"},
	{.names = "checkout restore switch reset",
		.operands = "B*",
		.options = "-bBcCs: -qftdNWS --orphan: --source: --pathspec-from-file< --quiet "
			   "--force --track= --detach --ours --theirs --staged --worktree --soft "
			   "--mixed --hard --keep --merge --create: --discard-changes --guess "
			   "--no-guess --progress --no-progress"},
	{.names = "clean",
		.operands = "X*",
		.look = shell_look_git_clean,
		.options = "-e: -dfxXnq --exclude: --force --dry-run --quiet"},
	{.names = "rebase",
		.operands = "t*",
		.options = "-qvf -x:! --exec:! -i! --interactive! -s:! --strategy:! --onto: -X: "
			   "--continue --abort --skip --quit --autostash --no-autostash --quiet "
			   "--root --keep-base"},
	{.names = "merge",
		.operands = "t*",
		.options = "-qvn -m: -X: -s:! --strategy:! -F< --file< --no-ff --ff --ff-only "
			   "--squash --no-squash --commit --no-commit --no-edit --abort "
			   "--continue --quit --quiet --verbose --stat --no-stat --autostash"},
	{.names = "cherry-pick revert",
		.operands = "t*",
		.options = "-nsx -m: -X: --strategy:! --continue --abort --skip --quit "
			   "--no-commit --no-edit --signoff --allow-empty --ff --mainline:"},
	{.names = "apply am",
		.operands = "r*",
		.options = "-Rvq3 -pC: --directory& --build-fake-ancestor> --check --stat "
			   "--numstat --summary --cached --index --reverse --3way --verbose "
			   "--whitespace: --recount --continue --abort --skip --quit"},
	{.names = "format-patch",
		.operands = "t*",
		.flags = TREE,
		.options = "-123456789 -o> --output-directory> --output> --signature-file< "
			   "--stdout --cover-letter"},
	{.names = "archive",
		.operands = "t*",
		.flags = TREE,
		.options = "-v -o> --output> --exec:! --remote! --add-file< --format: --prefix: "
			   "--verbose"},
	{.names = "bundle", .options = "-q --quiet", .operands = "tw", .flags = TREE},
	{.names = "difftool mergetool filter-branch send-email instaweb daemon web--browse shell "
		  "credential hook p4 svn gui citool upload-pack receive-pack upload-archive "
		  "fetch-pack send-pack merge-index remote-ext remote-fd for-each-repo "
		  "maintenance http-backend cvsserver",
		.flags = SHELL_ROW_RUNS_OTHERS},
};

#define GIT_OPTIONS                                                                            \
	"-C~ -c:! -p! -P --paginate! --no-pager --exec-path:! --git-dir:% --work-tree:% "      \
	"--namespace:% "                                                                       \
	"--config-env:! --super-prefix:% --bare% --no-replace-objects --literal-pathspecs "    \
	"--glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-optional-locks --version " \
	"--help? -h? -v --html-path --man-path --info-path --list-cmds: --attr-source:"

static const struct shell_row rows[] = {
	{.names = "git",
		.options = GIT_OPTIONS,
		.flags = READS,
		.look = shell_look_git,
		COMMANDS(git_commands)},
};
const struct shell_rows shell_rows_git = {rows, array_size(rows)};
