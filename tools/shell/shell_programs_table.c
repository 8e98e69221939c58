/*
 * One row per known program; those with sub-commands are in shell_programs_git.c and
 * shell_programs_packages.c.  shell_programs_internal.h explains the strings.
 * Programs that only read come first; tests/tools/programs_trace.py compares their rows with the
 * programs.
 */
#include "tools/shell/shell_programs_rows.h"

#define CHECKSUMS                                                                              \
	"-btzcw? -a:? -l:? --binary --text --tag --zero --check? --ignore-missing? --quiet? "  \
	"--status? --strict? --warn? --version --help --algorithm: --base64 --raw --untagged " \
	"--length: --debug"

static const struct shell_row rows[] = {
	/* These print their words. */
	{.names = "echo true false : pwd exit return", .flags = PRINTS, .operands = "t*"},
	{.names = "basename dirname",
		.flags = READS_ANY,
		.operands = "t*",
		.options = "-s: --suffix:"},
	{.names = "printf",
		.options = "-v:%",
		.flags = READS | STOPS,
		.operands = "t*",
		.look = shell_look_printf},
	{.names = "test [", .flags = PRINTS, .operands = "t*", .look = shell_look_test},
	{.names = "seq factor nproc arch whoami id groups uname tty logname sleep uptime "
		  "free expr which",
		.flags = READS_ANY,
		.operands = "t*"},
	{.names = "getconf", .options = "-a", .flags = READS, .operands = "t*"},
	{.names = "type", .options = "-afptP", .flags = READS, .operands = "t*"},
	{.names = "hostname",
		.options = "-AadfiIsy -F:% -b% --alias --all-fqdns --all-ip-addresses "
			   "--domain --fqdn --ip-address --long --nis --short --yp",
		.flags = READS,
		.operands = "t*",
		.look = shell_look_only_options},
	{.names = "date",
		.flags = READS,
		.operands = "t*",
		.look = shell_look_date,
		.options =
			"-uR -d: -I= -r< -f< -s:% --date: --debug --file< --iso-8601= --resolution "
			"--reference< --rfc-email --rfc-3339: --set:% --utc --universal "
			"--version --help"},

	/* These read the files that are their operands, and have no option that does more. */
	{.names = "cat rev", .flags = READS_ANY, .operands = "r*", .options = ""},
	{.names = "head",
		.options = "-nc: --lines: --bytes:",
		.flags = READS_ANY,
		.operands = "r*"},
	{.names = "tail",
		.flags = READS_ANY,
		.operands = "r*",
		.options = "-nc: -s: -fF --lines: --bytes: --pid: --sleep-interval: "
			   "--max-unchanged-stats: --follow="},
	{.names = "cut",
		.flags = READS_ANY,
		.operands = "r*",
		.options = "-bcdf: --bytes: --characters: --delimiter: --fields: "
			   "--output-delimiter:"},
	{.names = "paste", .options = "-d: --delimiters:", .flags = READS_ANY, .operands = "r*"},
	{.names = "nl",
		.flags = READS_ANY,
		.operands = "r*",
		.options =
			"-bdfhilnsvw: --body-numbering: --section-delimiter: --footer-numbering: "
			"--header-numbering: --line-increment: --join-blank-lines: "
			"--number-format: --number-separator: --starting-line-number: "
			"--number-width:"},
	{.names = "fmt",
		.flags = READS_ANY,
		.operands = "r*",
		.options = "-wgp: --width: --goal: --prefix:"},
	{.names = "fold", .options = "-w: --width:", .flags = READS_ANY, .operands = "r*"},
	{.names = "expand unexpand",
		.options = "-t: --tabs:",
		.flags = READS_ANY,
		.operands = "r*"},
	{.names = "tac", .options = "-s: --separator:", .flags = READS_ANY, .operands = "r*"},
	{.names = "comm", .options = "--output-delimiter:", .flags = READS_ANY, .operands = "rr"},
	{.names = "join", .options = "-12aejotv:", .flags = READS_ANY, .operands = "rr"},
	{.names = "cmp",
		.options = "-in: --ignore-initial: --bytes:",
		.flags = READS_ANY,
		.operands = "rrtt"},
	{.names = "od",
		.flags = READS_ANY,
		.operands = "r*",
		.options = "-AjNSt: --address-radix: --endian: --skip-bytes: --read-bytes: "
			   "--format:"},
	{.names = "tr", .flags = READS_ANY, .operands = "t*"},
	{.names = "base64 base32", .options = "-w: --wrap:", .flags = READS_ANY, .operands = "r*"},
	{.names = "stat",
		.options = "-c: --format: --printf: --cached:",
		.flags = READS_ANY,
		.operands = "r*"},
	{.names = "df",
		.options = "-Btx: --block-size: --type: --exclude-type:",
		.flags = READS_ANY,
		.operands = "r*"},
	{.names = "readlink", .flags = READS_ANY, .operands = "r*"},
	{.names = "realpath",
		.options = "--relative-to: --relative-base:",
		.flags = READS_ANY,
		.operands = "r*"},

	/* These have options that do more. */
	{.names = "ls dir vdir",
		.flags = READS | HERE,
		.operands = "r*",
		.options = "-aAbBcCdDfFgGhHiklmnNopqQrsStuUvxX1Z -R* -L/ -ITw: --recursive* "
			   "--dereference/ --all --almost-all --author --escape --block-size: "
			   "--ignore-backups --color= --directory --dired --classify= --file-type "
			   "--format: --full-time --no-group --group-directories-first "
			   "--human-readable --si --dereference-command-line "
			   "--dereference-command-line-symlink-to-dir --hide: --hyperlink= "
			   "--indicator-style: --inode --ignore: --kibibytes --numeric-uid-gid "
			   "--literal --hide-control-chars --show-control-chars --quote-name "
			   "--quoting-style: --reverse --size --sort: --time: --time-style: "
			   "--tabsize: --width: --context --zero --help --version"},
	{.names = "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum",
		.options = CHECKSUMS,
		.flags = READS,
		.operands = "r*"},
	{.names = "wc",
		.flags = READS,
		.operands = "r*",
		.options = "-clmwL --bytes --chars --lines --words --max-line-length --total: "
			   "--files0-from<% --help --version"},
	{.names = "sort",
		.flags = READS,
		.operands = "r*",
		.options = "-bdfgiMhnRrVcCmsuz -kSt: -o> -T> --key: --field-separator: "
			   "--buffer-size: --batch-size: --parallel: --sort: --check= --debug "
			   "--ignore-leading-blanks --dictionary-order --ignore-case "
			   "--general-numeric-sort --ignore-nonprinting --month-sort "
			   "--human-numeric-sort --numeric-sort --random-sort --random-source< "
			   "--reverse --version-sort --merge --stable --unique --zero-terminated "
			   "--output> --temporary-directory> --compress-program:! --files0-from<% "
			   "--help --version"},
	{.names = "uniq",
		.flags = READS,
		.operands = "rw",
		.options = "-cdDiuz0123456789 -fsw: --count --repeated --all-repeated= --group= "
			   "--ignore-case --unique --zero-terminated --skip-fields: "
			   "--skip-chars: --check-chars: --help --version"},
	{.names = "grep egrep fgrep",
		.flags = READS,
		.operands = "tg*",
		.options = "-EFGPiyvwxzscoqHhnaILlTUVbZ0123456789 -ABCmD: -d:* -e:^ -f<^ -r* -R*/ "
			   "--extended-regexp --fixed-strings --basic-regexp --perl-regexp "
			   "--regexp:^ --file<^ --ignore-case --no-ignore-case --invert-match "
			   "--word-regexp --line-regexp --count --color= --colour= "
			   "--files-without-match --files-with-matches --max-count: "
			   "--only-matching --quiet --silent --no-messages --byte-offset "
			   "--with-filename --no-filename --label: --line-number --initial-tab "
			   "--null --null-data --after-context: --before-context: --context: "
			   "--group-separator: --no-group-separator --text --binary-files: "
			   "--devices: --directories:* --exclude: --exclude-from< --exclude-dir: "
			   "--include: --recursive* --dereference-recursive*/ --line-buffered "
			   "--binary --help --version"},
	{.names = "rg",
		.flags = READS | HERE,
		.operands = "tR*",
		.options = "-abcFHhIilNnoPpqsSUuvVwx0. -ABCdEgjMmrtT: -e:^ -f<^ -L/ -z! "
			   "--after-context: --before-context: --context: --max-depth: --maxdepth: "
			   "--encoding: --glob: --iglob: --threads: --max-columns: --max-count: "
			   "--replace: --type: --type-not: --type-add: --type-clear: --regexp:^ "
			   "--file<^ --ignore-file< --pre:! --pre-glob: --hostname-bin:! "
			   "--search-zip! --follow/ --color: --colors: --context-separator: "
			   "--dfa-size-limit: --regex-size-limit: --engine: "
			   "--field-context-separator: --field-match-separator: --max-filesize: "
			   "--path-separator: --sort: --sortr: --files^ --type-list^ --version "
			   "--help --text --byte-offset --case-sensitive --column --count "
			   "--count-matches --crlf --debug --trace --no-config "
			   "--files-with-matches --files-without-match --fixed-strings "
			   "--glob-case-insensitive --heading --no-heading --hidden --no-hidden "
			   "--ignore-case --include-zero --invert-match --json --line-buffered "
			   "--block-buffered --line-number --no-line-number --line-regexp "
			   "--max-columns-preview --mmap --no-mmap --multiline "
			   "--multiline-dotall --no-filename --with-filename --no-ignore "
			   "--no-ignore-dot --no-ignore-exclude --no-ignore-files "
			   "--no-ignore-global --no-ignore-messages --no-ignore-parent "
			   "--no-ignore-vcs --no-messages --no-require-git --null --null-data "
			   "--one-file-system --only-matching --passthru --pcre2 --pretty --quiet "
			   "--smart-case --stats --trim --unrestricted --vimgrep --word-regexp "
			   "--binary --no-unicode --no-follow --no-binary --no-column --no-json "
			   "--no-stats --no-trim --no-multiline --no-pcre2"},
	{.names = "fd fdfind",
		.flags = READS | HERE,
		.operands = "tR*",
		.look = shell_look_fd,
		.options =
			"-HIugFpisa01q -l? -L/ -dteESocjT: -xX! --exec:! --exec-batch:! --hidden "
			"--no-ignore --unrestricted --glob --fixed-strings --full-path "
			"--ignore-case --case-sensitive --absolute-path --follow/ --print0 "
			"--max-depth: --min-depth: --exact-depth: --type: --extension: "
			"--size: --exclude: --owner: --color: --threads: --changed-within: "
			"--changed-before: --max-results: --quiet --ignore-file< "
			"--search-path< --base-directory~ --no-ignore-vcs --list-details?"},
	{.names = "find",
		.flags = READS | SHELL_ROW_PLAIN_WORDS | SHELL_ROW_WORD_OPTIONS,
		.look = shell_look_find,
		.options = "-empty -false -true -depth -d -daystart -follow/ -help -version "
			   "-ignore_readdir_race -noignore_readdir_race -mount -noleaf -nouser "
			   "-nogroup -print -print0 -prune -quit -readable -writable -executable "
			   "-xdev -warn -nowarn -ls -not -a -and -o -or -delete -amin: -anewer< "
			   "-atime: -cmin: -cnewer< -ctime: -fstype: -gid: -group: -ilname: "
			   "-iname: -inum: -ipath: -iregex: -iwholename: -links: -lname: "
			   "-maxdepth: -mindepth: -mmin: -mtime: -name: -newer< -path: -perm: "
			   "-regex: -regextype: -samefile< -size: -type: -uid: -used: -user: "
			   "-wholename: -xtype: -context: -printf: -fls> -fprint> -fprint0> "
			   "-fprintf>"},
	{.names = "file",
		.flags = READS,
		.operands = "r*",
		.options = "-bciklnNrsv0dhL -p? -eFP: -m<% -f<% -C> -zZ! -S% --brief --mime "
			   "--mime-type "
			   "--mime-encoding --extension --keep-going --no-pad --raw --print0 "
			   "--dereference --no-dereference --no-buffer --separator: --exclude: "
			   "--exclude-quiet: --parameter: --version --help --apple "
			   "--checking-printout --special-files --magic-file<% --files-from<% "
			   "--compile> --uncompress! --uncompress-noreport! --no-sandbox% "
			   "--preserve-date? --list"},
	{.names = "du",
		.flags = READS | HERE,
		.operands = "R*",
		.options =
			"-0abchHkmlPSsxD -L/ -Bdt: -X< --null --all --apparent-size --block-size: "
			"--bytes --total --dereference-args --max-depth: --human-readable "
			"--inodes --count-links --dereference/ --no-dereference --separate-dirs "
			"--si --summarize --threshold: --time= --time-style: --exclude-from< "
			"--exclude: --one-file-system --files0-from<% --help --version"},
	{.names = "tree",
		.flags = READS | HERE | SHELL_ROW_SEPARATE_VALUES,
		.operands = "R*",
		.options = "-adfinpqrsugDhCFAQNSJXUtcvx -LPIHT: -o:% -l/ --dirsfirst --filesfirst "
			   "--noreport --prune --charset: --filelimit: --timefmt: --sort= --inodes "
			   "--device --du --si --gitignore --ignore-case --matchdirs --metafirst "
			   "--info --fromfile% --fromtabfile% --gitfile< --infofile< --version "
			   "--help --nolinks --hintro% --houtro%"},
	{.names = "diff",
		.flags = READS,
		.operands = "FF",
		.options =
			"-abBcdeEinNpPqstTuvwyZ0123456789 -l! -CDFISUWx: -X< -r* --normal --brief "
			"--report-identical-files --context= --unified= --ed --rcs "
			"--side-by-side --width: --left-column --suppress-common-lines "
			"--show-c-function --show-function-line: --label: -L: --expand-tabs "
			"--initial-tab --tabsize: --suppress-blank-empty --recursive* "
			"--no-dereference --new-file --unidirectional-new-file "
			"--ignore-file-name-case --no-ignore-file-name-case --exclude: "
			"--exclude-from< --starting-file: --from-file:% --to-file:% "
			"--ignore-case --ignore-tab-expansion --ignore-trailing-space "
			"--ignore-space-change --ignore-all-space --ignore-blank-lines "
			"--ignore-matching-lines: --text --strip-trailing-cr --ifdef: "
			"--line-format: --old-line-format: --new-line-format: "
			"--unchanged-line-format: --minimal --horizon-lines: "
			"--speed-large-files --color= --palette: --help --version "
			"--paginate!"},
	{.names = "xxd",
		.flags = READS | STOPS | SHELL_ROW_WORD_OPTIONS,
		.operands = "rw",
		.options = "-a -b -C -d -e -E -h -i -p -ps -plain -u -v -c: -cols: -g: -l: -len: "
			   "-n: -o: -s: -seek: -r? -R:"},
	{.names = "hexdump hd",
		.flags = READS,
		.operands = "r*",
		.options = "-bCcdoxvX -ens: -f< --canonical --one-byte-octal --one-byte-char "
			   "--one-byte-hex --two-bytes-decimal --two-bytes-octal --two-bytes-hex "
			   "--format: --format-file< --length: --skip: --no-squeezing --color="},
	{.names = "strings",
		.flags = READS | SHELL_ROW_AT_FILES,
		.operands = "r*",
		.options = "-afowv0123456789 -enstUT: --all --data --print-file-name --bytes: "
			   "--include-all-whitespace --encoding: --output-separator: --radix: "
			   "--unicode: --target: --help --version"},
	{.names = "nm",
		.flags = READS | SHELL_ROW_AT_FILES,
		.operands = "r*",
		.options = "-aABCDfghjnopPrSsuvW -tf: --plugin:! --debug-syms --print-file-name "
			   "--demangle= --no-demangle --dynamic --defined-only --extern-only "
			   "--format: --numeric-sort --no-sort --portability --print-armap "
			   "--print-size --radix: --reverse-sort --size-sort --undefined-only "
			   "--no-weak --special-syms --synthetic --with-symbol-versions "
			   "--quiet --just-symbols --help --version"},
	{.names = "objdump",
		.flags = READS | SHELL_ROW_AT_FILES,
		.operands = "r*",
		.options = "-adDfghHioprRstTvVwxCz -bjmME: --archive-headers --file-headers "
			   "--private-headers --section-headers --headers --all-headers "
			   "--disassemble= --disassemble-all --disassemble-zeroes --debugging "
			   "--full-contents --syms --dynamic-syms --reloc --dynamic-reloc "
			   "--stabs --section: --disassembler-options: --demangle= "
			   "--start-address: --stop-address: --wide --no-show-raw-insn "
			   "--show-raw-insn --no-addresses --architecture: --target: --help "
			   "--version"},
	{.names = "size",
		.flags = READS | SHELL_ROW_AT_FILES,
		.operands = "r*",
		.options = "-ABGdoxtfvh --format: --radix: --common --totals --target: --help "
			   "--version"},
	{.names = "readelf",
		.flags = READS | SHELL_ROW_AT_FILES,
		.operands = "r*",
		.options = "-aAdgehlSsnruVIWtTcDCv -xpR: --all --file-header --program-headers "
			   "--segments --section-headers --sections --symbols --syms --dyn-syms "
			   "--notes --relocs --unwind --dynamic --version-info --hex-dump: "
			   "--string-dump: --wide --help --version"},
	{.names = "column",
		.flags = READS,
		.operands = "r*",
		.options = "-txeJLd -csoNlHRTWEOnrpi: --table --separator: --output-separator: "
			   "--output-width: --table-columns: --json --table-name: --table-right: "
			   "--table-hide: --table-truncate: --table-wrap: --fillrows"},
	{.names = "shuf",
		.flags = READS,
		.operands = "r*",
		.options = "-ezr -in: -o> --echo --input-range: --head-count: --output> "
			   "--random-source< --repeat --zero-terminated"},
	{.names = "jq",
		.flags = READS,
		.operands = "tr*",
		.look = shell_look_jq,
		.options = "-cnrsRSCMaejhV -f% -L:% --from-file% --library-path:% --compact-output "
			   "--null-input --raw-output --raw-output0 --join-output --slurp "
			   "--raw-input --sort-keys --color-output --monochrome-output --tab "
			   "--indent: --ascii-output --unbuffered --stream --stream-errors --seq "
			   "--exit-status --arg+: --argjson+: --slurpfile+< --rawfile+< "
			   "--argfile+< --args --jsonargs --help --version --run-tests% "
			   "--build-configuration"},
	{.names = "sed gsed",
		.flags = READS,
		.operands = "tr*",
		.look = shell_look_sed,
		.options = "-nErsuz -e:^ -i=^? -f<%^ --quiet --silent --regexp-extended "
			   "--separate --unbuffered --null-data --expression:^ --in-place=^? "
			   "--file:% --help --version"},
	{.names = "awk mawk gawk nawk",
		.flags = READS | STOPS,
		.operands = "tr*",
		.look = shell_look_awk,
		.options = "-F: -f<%^ --version"},
	{.names = "zcat", .options = "-fqv", .flags = READS, .operands = "r*"},
	{.names = "tee",
		.options = "-aip --append --ignore-interrupts --output-error=",
		.flags = READS,
		.operands = "w*"},

	{.names = "pip pip3",
		.prefix = 1,
		.options =
			"-qvU -y --quiet --verbose --upgrade --user --yes --no-deps --pre "
			"--no-cache-dir --format: --python:! -r< --requirement< -c< -t> --target> "
			"--prefix> --root> --config-settings:! "
			"-e< --cache-dir& --log> --src> -d> -w> "
			"--global-option:! --build-option:!"},
	{.names = "systemctl apt apt-get dnf brew gradle mvn dotnet terraform deno uv poetry "
		  "bundle "
		  "rake",
		.prefix = 1,
		.options = "-qvy --help --version --quiet --verbose --yes --no-pager"},

	/* Builders. */
	{.names = "make gmake",
		.prefix = 1,
		.look = shell_look_make,
		.options =
			"-bBdikmnpqrRsStvw -jl=# -O= -f< -C~ -I< -E:! -o: -W: --file< --makefile< "
			"--directory~ --include-dir< --eval:! --jobs=# --load-average=# "
			"--old-file: --assume-old: --what-if: --new-file: --assume-new: "
			"--output-sync= --debug= --keep-going --dry-run --just-print --recon "
			"--silent --quiet --always-make --environment-overrides! --trace"},
	{.names = "ninja",
		.prefix = 1,
		.options = "-C~ -f< -t:! -j: -k: -l: -d: -w: -nvq --quiet "
			   "--verbose --version"},
	{.names = "meson",
		.prefix = 1,
		.options = "--wrapper:! --wrap:! -C~ --native-file< "
			   "--cross-file< --prefix: --gdb-path:! --setup: "
			   "--logbase: --suite: -t: -j: -D:; -qv --quiet --verbose "
			   "--buildtype: --reconfigure --wipe --no-rebuild --list "
			   "--print-errorlogs --version"},
	{.names = "cmake",
		.prefix = 1,
		.look = shell_look_cmake,
		.options = "-P:! -E! -C:! --build~ --install~ -S< -B& -D:; -G: "
			   "-T: -A: --toolchain:! --preset: --target: -j= --parallel= "
			   "--config: --verbose --version --clean-first --fresh "
			   "--graphviz> --trace-redirect> "
			   "--debugger-dap-log>"},
	{.names = "ctest pytest",
		.prefix = 1,
		.options = "-qvxsl --lf --ff --last-failed --failed-first --tb: --maxfail: "
			   "--verbose --quiet --exitfirst --durations: --color: "
			   "--collect-only --co --no-header --output-on-failure --version "
			   "-R: -E: -L: -j: --test-dir< "
			   "-p:! -c< --rootdir& --basetemp> -S:! "
			   "--build-makeprogram:! --overwrite! "
			   "--test-command:! --junitxml> "
			   "--junit-xml> --confcutdir& -o:; -k: "
			   "-m: -n: --override-ini:;"},
	{.names = "gcc cc g++ c++ clang clang++ cpp",
		.operands = "b*",
		.flags = SHELL_ROW_WORD_OPTIONS | SHELL_ROW_AT_FILES,
		.look = shell_look_gcc,
		.options = "-c -S -E -g -w -s -v -M -MM -MD -MMD -MP -W: -O: -O -g: -m: "
			   "-pthread -static -shared -fPIC -fpic -fPIE -fpie -pie "
			   "-fsanitize: -fno-strict-aliasing -fno-omit-frame-pointer "
			   "-fdiagnostics-color: -fsyntax-only -fanalyzer -pedantic -ansi "
			   "--version --help -o> -I< -L< -B:! -wrapper:! -fplugin:! -specs:! "
			   "--specs:! -include< "
			   "-imacros< "
			   "-isystem< -iquote< -idirafter< -isysroot< --sysroot< -MF> -MT: -MQ: "
			   "-MJ> -x: -D: -U: -l: -std: -Xclang:! -T< "
			   "-fuse-ld! -dumpdir> -dumpbase> -load:! -fpass-plugin! --config:% "
			   "-fprofile-use< -fprofile-generate> "
			   "--ld-path:! -aux-info> -gcc-toolchain!"},
	{.names = "rustc",
		.operands = "b*",
		.flags = SHELL_ROW_AT_FILES,
		.options = "-o> --out-dir> -C:! --codegen:! -Z:! -L< --sysroot< --extern< --emit> "
			   "--print: --crate-type: --crate-name: --edition: --cfg: -O -g "
			   "--test --version -l: --cap-lints: -A: -W: -D: -F:"},
	{.names = "python python3 pypy3",
		.flags = STOPS,
		.prefix = 1,
		.operands = "rb*",
		.options = "-bBdEhIOPqsSuvVx -c:^ -m:^ -W: --version --help"},
	{.names = "node nodejs",
		.flags = STOPS,
		.prefix = 1,
		.operands = "rb*",
		.options = "-cv -e:^ -p:^ --eval:^ --print:^ --check --help -r< --require< "
			   "--import:! --loader:! "
			   "--experimental-loader:! --env-file< --test --watch "
			   "--max-old-space-size: --cpu-prof-dir> --diagnostic-dir> "
			   "--redirect-warnings> --report-dir> --heapsnapshot-signal: "
			   "--openssl-config< --icu-data-dir< --snapshot-blob& --version"},

	/* Files. */
	{.names = "cp",
		.operands = "r*d",
		.flags = SHELL_ROW_KEEPS_NAMES,
		.options = "-t>$ --target-directory>$ -rRa*| --recursive*| --archive*| -LH/ "
			   "--dereference/ --backup=| --preserve= --no-preserve: --sparse: "
			   "--reflink= --parents% -bdlPs| -finpuvx --force --interactive "
			   "--no-clobber --update= --verbose --no-dereference| --link| "
			   "--symbolic-link| --remove-destination|"},
	{.names = "mv",
		.operands = "B*D",
		.options = "-t>$ --target-directory>$ --backup= -bfinTuv --force --interactive "
			   "--no-clobber --update= --verbose --no-target-directory"},
	{.names = "rm",
		.operands = "x*",
		.options = "-rR* --recursive* -dfiIv --interactive= "
			   "--force --dir --verbose --one-file-system "
			   "--preserve-root= --no-preserve-root%"},
	{.names = "rmdir",
		.operands = "x*",
		.options = "-pv --parents --verbose --ignore-fail-on-non-empty"},
	{.names = "mkdir",
		.operands = "w*",
		.flags = SHELL_ROW_KEEPS_NAMES,
		.options = "-m: --mode: -pvZ --parents --verbose --context="},
	{.names = "ln",
		.operands = "b*d",
		.options = "-t>$ --target-directory>$ --backup= -bfinPrsTv --symbolic --force "
			   "--interactive --no-dereference --relative --verbose"},
	{.names = "touch",
		.operands = "w*",
		.flags = SHELL_ROW_KEEPS_NAMES,
		.options = "-acfhm -d: -t: -r< --date: --reference< --time: --no-create"},
	{.names = "chmod chown chgrp",
		.operands = "tw*",
		.flags = SHELL_ROW_KEEPS_NAMES,
		.options = "-R* --recursive* --reference<^ --from: -cfvhPrwxXst -HL/ --changes "
			   "--quiet --silent --verbose --no-dereference"},
	{.names = "truncate",
		.operands = "w*",
		.flags = SHELL_ROW_KEEPS_NAMES,
		.options = "-cos: -r< --size: --reference< --no-create"},
	{.names = "shred unlink",
		.operands = "x*",
		.options = "-n: -s: -fuvxz --iterations: --size: --random-source<"},
	{.names = "install",
		.operands = "r*d",
		.options = "-m: -o: -g: -t>$ -dDpvC --target-directory>$ --mode: --owner: "
			   "--group: --strip-program:! -s!"},
	{.names = "dd",
		.look = shell_look_dd,
		.flags = SHELL_ROW_PLAIN_WORDS | SHELL_ROW_KEEPS_NAMES},
	{.names = "tar bsdtar",
		.operands = "B*",
		.look = shell_look_tar,
		.options =
			"-cxtzjaJvpkmO -h/ -P% -f& -C~ -g& -X< -T<% -I:! -F:! --file& "
			"--directory~ --exclude-from< --files-from:% --use-compress-program:! "
			"--to-command:! --checkpoint-action:! --rsh-command:! --rmt-command:! "
			"--info-script:! --new-volume-script:! --exclude: --transform:! --xform:! "
			"--add-file< --strip-components: --extract --get --create --list "
			"--verbose --gzip --xz --bzip2 --zstd --dereference/ --absolute-names%"},
	{.names = "zip",
		.operands = "wF*",
		.options = "-@% -T! --unzip-command:! -b> "
			   "--temp-path> -O> --output-file> "
			   "--logfile-path> -x: -rqvjyuX0123456789"},
	{.names = "unzip",
		.operands = "rt*",
		.look = shell_look_unzip,
		.options = "-d>* -x: -ajlnopqtvZz"},
	{.names = "gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd",
		.operands = "b*",
		.look = shell_look_gzip,
		.options = "-o> -cdfhklLnqtvV123456789 --stdout --decompress --keep --force"},

	/* Networks. */
	{.names = "curl",
		.operands = "t*",
		.look = shell_look_curl,
		.options = "-o> -T< -K:% -D> -c> -F:@ -d:@ -H:@ -w:@ -X: -A: -u: -m: "
			   "-fgGiIjkLNOsSvR046 -J% --output> --upload-file< --config:% "
			   "--dump-header> --cookie-jar> --form:@ --data:@ --data-raw: "
			   "--data-binary:@ --data-ascii:@ --data-urlencode:@ --json:@ --header:@ "
			   "--trace> --trace-ascii> --stderr> --cert< --key< --cacert< --capath< "
			   "--output-dir> --unix-socket:% --abstract-unix-socket:% --libcurl> "
			   "--engine:! --request: --user-agent: --user: --max-time: "
			   "--connect-timeout: --retry: --retry-delay: --url: --referer: "
			   "--proxy:% --resolve:% --connect-to:% --silent --show-error --fail "
			   "--location --include --head --get --insecure --verbose --compressed "
			   "--remote-name --remote-name-all --http1.1 --http2 --no-buffer "
			   "--fail-with-body --version"},
	{.names = "wget",
		.operands = "t*",
		.look = shell_look_wget,
		.options = "-rmpxqcNSkLE46 -O> -o> -a> -P> -i<% -e:! -t: -T: -U: --quiet "
			   "--no-verbose --continue --timestamping --no-check-certificate "
			   "--timeout: --tries: --user-agent: --header: --post-data: --method: "
			   "--recursive --mirror --page-requisites --no-parent --level: "
			   "--content-disposition --trust-server-names --force-directories "
			   "--use-askpass:! "
			   "--post-file< --body-file< "
			   "--save-cookies> --load-cookies< --config:% --output-document> "
			   "--output-file> --append-output> --directory-prefix> --input-file<% "
			   "--execute:! --certificate< --private-key< --ca-certificate< "
			   "--ca-directory< --warc-file> --warc-tempdir> --hsts-file& "
			   "--rejected-log> --egd-file< --random-file< --pinnedpubkey<"},
	{.names = "ssh",
		.operands = "t*",
		.look = shell_look_ssh,
		.flags = STOPS,
		.prefix = 1,
		.options = "-o:! -F:% -P: -I:! -i< -E> -S:% -J:% -W:% -L:% -R:% -D:% -w:% -O:% -A% "
			   "-X% -Y% "
			   "-bcelmp: -46aCNnqTtVvx"},
	{.names = "scp",
		.operands = "F*D",
		.options = "-o:! -S:! -D:! -F:% -i< -J:% -cPl: -r* -46BCpqv"},
	{.names = "rsync",
		.operands = "F*D",
		.options =
			"-e:! --rsh:! --rsync-path:! -M:! --remote-option:! --daemon! --config:% "
			"--files-from< --exclude-from< --include-from< --log-file> "
			"--password-file< -T> --temp-dir> --backup-dir> --partial-dir> "
			"--compare-dest< --copy-dest< --link-dest< --write-batch> "
			"--read-batch< --only-write-batch> -f:% --filter:% --early-input< "
			"-L/ --copy-links/ --copy-unsafe-links/ "
			"-avzhnrutpgolDPqcixHAXSW --archive --verbose --compress --dry-run "
			"--recursive --update --times --perms --links --progress --partial "
			"--stats --human-readable --checksum --ignore-existing --size-only "
			"--exclude: --include: --info:"},

	/* Programs that run a command among their words. */
	{.names = "env",
		.flags = READS | STOPS,
		.look = shell_look_env,
		.operands = "t*",
		.options = "-i0v -S:! -u: -C:% --ignore-environment --null --unset: --chdir:% "
			   "--split-string:! --debug --block-signal= --default-signal= "
			   "--ignore-signal= --list-signal-handling --help --version"},
	{.names = "printenv", .flags = STOPS | SHELL_ROW_KEEPS_NAMES, .operands = "t*"},
	{.names = "nice",
		.options = "-n: -0123456789 --adjustment: --help --version",
		.flags = TRANSPARENT},
	{.names = "nohup", .options = "--help --version", .flags = TRANSPARENT},
	{.names = "timeout",
		.flags = TRANSPARENT,
		.skip = 1,
		.options = "-ks: -vfp --kill-after: --signal: --foreground --preserve-status "
			   "--verbose --help --version"},
	{.names = "stdbuf", .options = "-ioe: --input: --output: --error:", .flags = TRANSPARENT},
	{.names = "setsid", .options = "-cfw --ctty --fork --wait", .flags = TRANSPARENT},
	{.names = "ionice",
		.options = "-tcn: -pPu:? --class: --classdata: --ignore",
		.flags = TRANSPARENT},
	{.names = "time",
		.options = "-apqvV -o> -f: --append --format: --output> --portability "
			   "--quiet --verbose",
		.flags = TRANSPARENT},
	{.names = "command",
		.options = "-pvV",
		.flags = READS | STOPS,
		.operands = "t*",
		.look = shell_look_command},
	{.names = "builtin", .options = "", .flags = TRANSPARENT},
	{.names = "exec", .options = "-cl% -a:%", .flags = TRANSPARENT, .look = shell_look_exec},
	{.names = "xargs",
		.flags = READS | STOPS,
		.look = shell_look_xargs,
		.operands = "t*",
		.options = "-0oprtx -a< -dEILnPs: -ile= --null --arg-file< --delimiter: --eof= "
			   "--replace= --max-lines= --max-args: --max-procs: --max-chars: "
			   "--interactive --no-run-if-empty --verbose --exit --show-limits "
			   "--open-tty --process-slot-var:%"},
	{.names = "watch",
		.flags = STOPS,
		.look = shell_look_watch,
		.options = "-n: -q: -bcdegtwx "
			   "--interval:"},
	{.names = "sudo",
		.flags = RUNS,
		.options = "-ugpCrtTh: -RD:% -AbEeHiKklnPSsVv --user: --group: "
			   "--prompt: --chdir:% --chroot:% --host:"},
	{.names = "doas", .flags = RUNS, .options = "-u: -C:% -Lns"},
	{.names = "chroot", .flags = RUNS, .skip = 1, .options = "--userspec: --groups:"},
	{.names = "strace ltrace",
		.flags = RUNS,
		.options = "-o! -esaPEpuObIjUX: -CcdfiknqrtTvxyzZ"},
	{.names = "flock", .flags = RUNS, .skip = 1, .options = "-w: -E: -c! -exnosuFv"},
	{.names = "taskset", .flags = RUNS, .skip = 1, .options = "-ap"},
	{.names = "chrt", .flags = RUNS, .skip = 1, .options = "-TPD: -abdfimoprRv"},
	{.names = "torsocks",
		.flags = RUNS,
		.options = "-upaP: --user: --pass: --address: --port:"},
	{.names = "dbus-run-session", .flags = RUNS, .options = "--config-file< --dbus-daemon:!"},
	{.names = "linux32 linux64 toybox eatmydata chronic ifne valgrind prlimit",
		.flags = RUNS,
		.options = ""},
	{.names = "unshare nsenter fakeroot busybox",
		.flags = RUNS,
		.options = "-SGRwlsibt: -CfimnprTUuc --target: --fork --mount-proc= --user= "
			   "--mount= --pid= "
			   "--net= --map-root-user"},
	{.names = "script expect parallel entr su runuser pkexec systemd-run setarch sftp",
		.flags = SHELL_ROW_RUNS_OTHERS},

	/* Shells, and built-ins that change the shell. */
	{.names = "bash sh dash zsh ksh ash fish csh tcsh",
		.flags = STOPS | SHELL_ROW_PLUS_OPTIONS,
		.prefix = 1,
		.look = shell_look_shell,
		.options = "-cefuvxnsabhkmprtBCEHPT -i! -l! -o: -O:! --rcfile:! --init-file:! "
			   "--login! "
			   "--norc --noprofile --posix% --version --help"},
	{.names = "eval", .flags = STOPS, .options = "", .look = shell_look_eval, .operands = "t*"},
	{.names = "trap",
		.flags = STOPS | SHELL_ROW_CHANGES_SHELL,
		.look = shell_look_trap,
		.options = "-lp"},
	{.names = "set", .flags = PRINTS, .operands = "t*", .look = shell_look_set},
	{.names = "hash source . cd pushd popd export unset alias unalias read getopts declare "
		  "typeset local "
		  "readonly let mapfile readarray shopt enable coproc bind complete "
		  "compgen compopt caller dirs disown fc history jobs logout suspend ulimit "
		  "umask wait exit return break continue shift times help bg fg",
		.flags = SHELL_ROW_CHANGES_SHELL},
	{.names = "less more man",
		.operands = "r*",
		.look = shell_look_less,
		.flags = SHELL_ROW_KEEPS_NAMES,
		.options = "-EFiNnrRSsX -o:% -O:% -k:% -P:! -H=! -T:% -M:% -C:% --pager:! "
			   "--html:! --log-file:% --LOG-FILE:% --lesskey-file:%"},
};
const struct shell_rows shell_rows_other = {rows, array_size(rows)};
