# bash completion of isthmus(1)
# shellcheck shell=bash

_isthmus_commands() {
	isthmus help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'
}

_isthmus_mounts() {
	local point type

	while read -r _ point type _; do
		[[ $type != fuse.isthmus ]] || printf '%b\n' "$point"
	done </proc/self/mounts
}

# _isthmus_candidates CURRENT [COMMAND]: lines, of which not all need to fit.
_isthmus_candidates() {
	case ${2:-help},$1 in
	help,*) _isthmus_commands ;;
	*,-*) isthmus "$2" --help | grep -oE -- '(^|[^a-z-])--[a-z][a-z-]*' | grep -oE -- '--.*' ;;
	*,local:/* | *,helper:/*) compgen -d -P "${1%%:*}:" -- "${1#*:}" ;;
	mount,* | run,* | doctor,*) isthmus --complete "$1" ;;
	*) _isthmus_mounts ;;
	esac
	[[ ${2:-help} == help || $1 == *:* || $1 == -* ]] || compgen -d -- "$1"
}

_isthmus() {
	# Bash parts words at ":" and "@", which are within URIs.
	local line=${COMP_LINE:0:COMP_POINT} words candidate
	local current=${line##*[[:space:]]}
	local kept=${current%"${current##*[:@=]}"}

	read -ra words <<<"$line"
	[[ -z $current ]] || unset 'words[-1]'
	COMPREPLY=()
	while read -r candidate; do
		[[ $candidate != "$current"* ]] || COMPREPLY+=("${candidate#"$kept"}")
	done < <(_isthmus_candidates "$current" "${words[1]:-}" 2>/dev/null | awk '!seen[$0]++')
	if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:/] ]]; then
		compopt -o nospace 2>/dev/null
	elif [[ $current != *:* && $current != -* ]]; then
		compopt -o filenames 2>/dev/null
	fi
}

complete -F _isthmus isthmus
